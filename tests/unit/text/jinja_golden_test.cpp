// Templates against what jinja2 makes of them (data/jinja.json, made by
// tools/golden/jinja_cases.py).
#include "base/file.h"
#include "support/moment.h"
#include "text/jinja/format.h"
#include "text/jinja/template.h"

#include <gtest/gtest.h>

#include <string>

namespace kapitsa::text::jinja {
namespace {

const std::string kPath = std::string(KAPITSA_TEST_DATA) + "/unit/text/data/jinja.json";

std::string text_at(const Value& dict, std::string_view key) {
  const Value* value = dict.as_dict()->find(key);
  return value && value->is_string() ? value->string().text() : std::string();
}

TEST(JinjaGolden, rendersLikeTheReference) {
  const auto file = read_text_file(kPath);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto document = parse_json(*file, Str::Origin::user);
  ASSERT_TRUE(document.ok()) << document.error().message;
  const Value& data = *document->as_dict()->find("data");
  const auto& cases = document->as_dict()->find("cases")->as_list()->items;
  EXPECT_GE(cases.size(), 150u);
  for (const Value& item : cases) {
    SCOPED_TRACE(text_at(item, "name") + ": " + text_at(item, "template").substr(0, 300));
    const Value* own = item.as_dict()->find("variables");
    RenderInput input;
    for (const auto& [key, value] : (own->is_dict() ? *own : data).as_dict()->entries())
      input.variables.emplace_back(key.string().text(), value);
    input.now = test::moment();
    const auto parsed = Template::parse(text_at(item, "template"));
    const Result<Str> rendered = parsed ? parsed->render(input) : Result<Str>(parsed.error());
    if (item.as_dict()->find("error")) {
      EXPECT_FALSE(rendered.ok()) << "rendered: " << rendered->text();
      if (!rendered) {
        EXPECT_TRUE(rendered.error().message.starts_with("template line "))
            << rendered.error().message;
        EXPECT_EQ(rendered.error().message.find('\n'), std::string::npos);
      }
      continue;
    }
    ASSERT_TRUE(rendered.ok()) << rendered.error().message;
    EXPECT_EQ(rendered->text(), text_at(item, "expected"));
  }
}

}  // namespace
}  // namespace kapitsa::text::jinja
