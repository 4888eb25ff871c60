// The catalog as the commands see it: entries of the user's own, what is wrong with them, and
// whether the figures of the built-in ones are those of the engine.
#include "cli/user_catalog.h"
#include "kapitsa/families.h"
#include "kapitsa/inspect.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kapitsa::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class UserCatalog : public testing::Test {
protected:
  Result<hub::Catalog> read(const std::string& text) const {
    return read_catalog(folder_.write("catalog.toml", text), "/me");
  }
  std::string error(const std::string& text) const {
    const auto catalog = read(text);
    return catalog ? "no error" : catalog.error().message;
  }

  const test::TemporaryFolder folder_;
};

TEST_F(UserCatalog, entries_join_the_built_in_ones) {
  const auto catalog = read(R"(
# of my own
[models.coder]
name = "Qwen3-Coder-30B-A3B"
hugging_face = "o/r-GGUF"
file = "Q4_K_M"
family = "qwen3-coder"
architecture = "qwen3moe"
parameters = 30.5e9
active = 3_300_000_000
context = 262144
quirks = ["none yet"]
[models.local]
path = "~/x.gguf"
[models.strange]
path = "y.gguf"
architecture = "no such"
)");
  ASSERT_TRUE(catalog) << catalog.error().message;
  EXPECT_EQ(catalog->entries.size(), hub::builtin_catalog().entries.size() + 3);
  const hub::CatalogEntry* coder = catalog->find("coder");
  ASSERT_NE(coder, nullptr);
  EXPECT_EQ(coder->full_name, "Qwen3-Coder-30B-A3B");
  EXPECT_EQ(coder->n_parameters, 30'500'000'000);
  EXPECT_EQ(coder->files.front().sources.front().repository, "o/r-GGUF");
  EXPECT_EQ(coder->files.front().sources.front().revision, "main");
  EXPECT_EQ(coder->files.front().file, "Q4_K_M");
  EXPECT_TRUE(coder->runs);
  EXPECT_EQ(catalog->find("local")->path, "/me/x.gguf");
  EXPECT_EQ(catalog->find("strange")->path, folder_ / "y.gguf");
  EXPECT_FALSE(catalog->find("strange")->runs);
}

TEST_F(UserCatalog, without_a_file_there_is_the_built_in_catalog) {
  const auto catalog = read_catalog(folder_ / "none.toml", "");
  ASSERT_TRUE(catalog);
  EXPECT_EQ(catalog->aliases(), hub::builtin_catalog().aliases());
}

TEST_F(UserCatalog, what_is_wrong_is_one_line_with_file_line_and_key) {
  struct Case {
    const char* text;
    const char* line;
    const char* message;
  };
  const std::string file = (folder_ / "catalog.toml").string();
  for (const Case& c : {
           Case{"[models.a\n", "1", "expected TOML: "},
           Case{"\n[models.a]\npath = 'x'\nnaame = 'y'\n", "4",
                "models.a.naame: expected one of the keys name, "},
           Case{"[models.a]\npath = 5\n", "2", "models.a.path: expected a text, found 5"},
           Case{"[models.a]\npath = ''\n", "2", "models.a.path: expected a text, found ''"},
           Case{"[models.a]\nname = 'n'\n", "1",
                "models.a: expected either the key path or the key hugging_face, found neither"},
           Case{"[models.a]\npath = 'x'\nhugging_face = 'o/r'\n", "1", "found both"},
           Case{"[models.a]\npath = 'x'\nsha256 = 'f'\n", "3",
                "models.a.sha256: expected this key only beside hugging_face"},
           Case{"[models.a]\nhugging_face = 'r'\n", "2",
                "models.a.hugging_face: expected OWNER/NAME, found 'r'"},
           Case{"[models.a]\nhugging_face = 'o/r'\nsha256 = 'F'\n", "3",
                "models.a.sha256: expected 64 digits"},
           Case{"[models.a]\npath = 'x'\nfamily = 'qwen9'\n", "3",
                "models.a.family: expected one of qwen3.8, "},
           Case{"[models.a]\npath = 'x'\ncontext = -1\n", "3",
                "models.a.context: expected a number above 0, found -1"},
           Case{"[models.a]\npath = 'x'\nquirks = ['a', 1]\n", "3",
                "models.a.quirks: expected a list of texts, found 1"},
           Case{"[models.35b]\npath = 'x'\n", "1",
                "models.35b: expected a name that the built-in catalog does not have"},
           Case{"[models.'a/b']\npath = 'x'\n", "1",
                "expected a name of a-z, 0-9, '.', '-' and '_', found 'a/b'"},
           Case{"[models]\na = 1\n", "2", "models.a: expected a table, found 1"},
           Case{"[modles.a]\npath = 'x'\n", "1",
                "modles: expected tables [models.NAME] only, found this key"},
       }) {
    const std::string message = error(c.text);
    EXPECT_THAT(message, StartsWith(file + ":" + c.line + ": ")) << c.text;
    EXPECT_THAT(message, HasSubstr(c.message)) << c.text;
    EXPECT_EQ(message.find('\n'), std::string::npos) << c.text;
  }
}

TEST(BuiltInCatalog, names_families_that_there_are) {
  const std::vector<FamilyInfo> known = families();
  for (const hub::CatalogEntry& entry : hub::builtin_catalog().entries) {
    EXPECT_TRUE(std::any_of(known.begin(), known.end(), [&](const FamilyInfo& family) {
      return family.name == entry.family;
    })) << entry.alias;
  }
}

// 4 bits of the catalog are those of the synthetic models: Q4_K or Q4_0 with a larger head.
TEST(BuiltInCatalog, memory_is_what_the_engine_needs) {
  for (const char* alias : {"smollm2", "35b", "27b", "bolt"}) {
    const hub::CatalogEntry* entry = hub::builtin_catalog().find(alias);
    for (const bool long_context : {false, true}) {
      LoadOptions options{.synthetic = alias, .context = long_context ? 32768 : 1024};
      options.max_sequences = 1;
      const auto report = inspect(options);
      ASSERT_TRUE(report) << report.error().message;
      ASSERT_TRUE(report->memory) << report->not_runnable;
      const int64_t memory = report->memory->total() - report->memory->buffers;
      const int64_t told = long_context ? entry->memory_32k : entry->memory_1k;
      EXPECT_NEAR(static_cast<double>(told), static_cast<double>(memory),
                  0.03 * static_cast<double>(memory))
          << alias << (long_context ? " 32K" : " 1K");
      EXPECT_NEAR(static_cast<double>(report->n_parameters),
                  static_cast<double>(entry->n_parameters),
                  0.01 * static_cast<double>(entry->n_parameters));
    }
  }
}

}  // namespace
}  // namespace kapitsa::cli
