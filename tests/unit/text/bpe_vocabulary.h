// The small trained vocabulary of data/bpe.json as a TokenizerSpec, for the tests of this folder.
#pragma once

#include "base/file.h"
#include "text/jinja/format.h"
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kapitsa::text {

struct BpeVocabulary {
  jinja::Value document;
  TokenizerSpec spec;  // its strings live in `document`

  const jinja::Value& at(const char* key) const { return *document.as_dict()->find(key); }
  const std::vector<jinja::Value>& list(const char* key) const { return at(key).as_list()->items; }
};

inline BpeVocabulary load_bpe_vocabulary() {
  BpeVocabulary v;
  const auto file = read_text_file(std::string(KAPITSA_TEST_DATA) + "/unit/text/data/bpe.json");
  EXPECT_TRUE(file.ok()) << file.error().message;
  auto document = jinja::parse_json(*file, jinja::Str::Origin::user);
  EXPECT_TRUE(document.ok()) << document.error().message;
  v.document = *document;
  const auto n_special = static_cast<size_t>(v.at("n_special").integral());
  for (const jinja::Value& token : v.list("tokens"))
    v.spec.tokens.push_back(token.string().view());
  for (const jinja::Value& merge : v.list("merges"))
    v.spec.merges.push_back(merge.string().view());
  v.spec.types.assign(v.spec.tokens.size(), TokenType::normal);
  std::fill(v.spec.types.end() - static_cast<std::ptrdiff_t>(n_special), v.spec.types.end(),
            TokenType::control);
  v.spec.pre = "gpt-2";
  return v;
}

inline std::vector<int32_t> to_ids(const jinja::Value& list) {
  std::vector<int32_t> ids;
  for (const jinja::Value& id : list.as_list()->items)
    ids.push_back(static_cast<int32_t>(id.integral()));
  return ids;
}

}  // namespace kapitsa::text
