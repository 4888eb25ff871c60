// Flattens the JSON of a model folder into metadata, adds the safetensors, and looks up how MLX
// quantised a module. MLX settings: mlx-lm, utils.py and mlx nn.quantize.
#include "weights/hf.h"

#include "base/json.h"
#include "weights/describe.h"
#include "weights/safetensors.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>

namespace kapitsa::weights {
namespace {

namespace json = boost::json;

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;

// Python writes infinities as Infinity, which is not JSON. A number of the same length takes their
// place, so that offsets in errors stay true. Text inside strings is left alone.
std::string replace_infinity(std::string_view text) {
  constexpr std::string_view kInfinity = "Infinity";
  constexpr std::string_view kLargest = "1.79e308";
  static_assert(kInfinity.size() == kLargest.size());
  std::string out(text);
  bool in_string = false;
  for (size_t i = 0; i < out.size(); ++i) {
    if (in_string && out[i] == '\\')
      ++i;
    else if (out[i] == '"')
      in_string = !in_string;
    else if (!in_string && std::string_view(out).substr(i).starts_with(kInfinity))
      out.replace(i, kInfinity.size(), kLargest);
  }
  return out;
}

template <typename Predicate>
bool all_of(const json::array& array, Predicate predicate) {
  return std::all_of(array.begin(), array.end(), predicate);
}

bool is_integer(const json::value& value) {
  return value.is_int64();
}
bool is_number(const json::value& value) {
  return value.is_number();
}

// One value for an array of one kind of scalar; nullopt for any other.
std::optional<Value> array_value(const json::array& array) {
  if (all_of(array, [](const json::value& v) { return v.is_string(); })) {
    StringList list;
    for (const json::value& item : array)
      list.push_back(item.get_string());
    return Value(std::move(list));
  }
  if (all_of(array, [](const json::value& v) { return v.is_bool(); })) {
    std::vector<bool> values;
    for (const json::value& item : array)
      values.push_back(item.get_bool());
    return Value(std::move(values));
  }
  if (all_of(array, is_integer)) {
    std::vector<int64_t> values;
    for (const json::value& item : array)
      values.push_back(item.get_int64());
    return Value(std::move(values));
  }
  if (all_of(array, is_number)) {
    std::vector<double> values;
    for (const json::value& item : array)
      values.push_back(item.to_number<double>());
    return Value(std::move(values));
  }
  return std::nullopt;
}

class Flattener {
public:
  Flattener(const std::string& file, Checkpoint& checkpoint)
      : file_(file), checkpoint_(checkpoint) {}

  // Recursion is bounded by the depth limit of parse_json.
  Status add(std::string key, const json::value& value) {
    switch (value.kind()) {
    case json::kind::null: return {};
    case json::kind::bool_: return set(std::move(key), value.get_bool());
    case json::kind::int64: return set(std::move(key), int64_t{value.get_int64()});
    case json::kind::uint64: return set(std::move(key), uint64_t{value.get_uint64()});
    case json::kind::double_: return set(std::move(key), value.get_double());
    case json::kind::string: return set(std::move(key), std::string(value.get_string()));
    case json::kind::object:
      for (const auto& [name, item] : value.get_object())
        KAPITSA_TRY(add(join(key, name), item));
      return {};
    case json::kind::array: break;
    }
    const json::array& array = value.get_array();
    if (std::optional<Value> flat = array_value(array)) return set(std::move(key), *flat);
    for (size_t i = 0; i < array.size(); ++i)
      KAPITSA_TRY(add(join(key, std::to_string(i)), array[i]));
    return {};
  }

private:
  static std::string join(const std::string& key, std::string_view name) {
    return key.empty() ? std::string(name) : fmt::format("{}.{}", key, name);
  }

  Status set(std::string key, Value value) {
    const std::string name = quote(key);
    if (checkpoint_.set(std::move(key), std::move(value))) return {};
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: expected each key once, found {} again", file_, name)};
  }

  const std::string& file_;
  Checkpoint& checkpoint_;
};

Status add_json_file(const std::filesystem::path& path, std::string_view prefix,
                     Checkpoint& checkpoint) {
  KAPITSA_ASSIGN(const std::string text, read_text_file(path, kMaxConfigBytes));
  return add_json_metadata(text, path.string(), prefix, checkpoint);
}

bool says_mlx(const Checkpoint& checkpoint) {
  const Result<std::string> format = checkpoint.string("__metadata__.format");
  return checkpoint.has("quantization.bits") || (format && *format == "mlx");
}

constexpr std::string_view kSettings = "quantization";

Result<MlxMode> read_mode(const Checkpoint& checkpoint, const std::string& prefix) {
  const std::string key = prefix + ".mode";
  KAPITSA_ASSIGN(const std::string name, checkpoint.string_or(key, "affine"));
  for (const MlxMode mode : {MlxMode::affine, MlxMode::mxfp4, MlxMode::mxfp8, MlxMode::nvfp4})
    if (name == to_string(mode)) return mode;
  return Error{ErrorCode::unsupported,
               fmt::format("{}: key '{}': expected affine, mxfp4, mxfp8 or nvfp4, found {}",
                           checkpoint.path().string(), key, quote(name))};
}

// The settings under `prefix`; what they leave out has the default of their mode.
Result<MlxQuant> read_quant(const Checkpoint& checkpoint, const std::string& prefix) {
  MlxQuant quant;
  KAPITSA_ASSIGN(quant.mode, read_mode(checkpoint, prefix));
  const bool affine = quant.mode == MlxMode::affine;
  const int default_group = affine ? 64 : quant.mode == MlxMode::nvfp4 ? 16 : 32;
  const int default_bits = quant.mode == MlxMode::mxfp8 ? 8 : 4;
  KAPITSA_ASSIGN(const int64_t bits, checkpoint.integer_or(prefix + ".bits", default_bits, 1, 32));
  KAPITSA_ASSIGN(const int64_t group,
                 checkpoint.integer_or(prefix + ".group_size", default_group, 1, 4096));
  quant.bits = static_cast<int>(bits);
  quant.group = static_cast<int>(group);
  if (!is_valid(quant))
    return Error{ErrorCode::unsupported,
                 fmt::format("{}: key '{}': expected a known quantisation, found {} with {} bits "
                             "and groups of {}",
                             checkpoint.path().string(), prefix, to_string(quant.mode), quant.bits,
                             quant.group)};
  return quant;
}

bool is_plain_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// Why the tensors do not fit each other, or an empty string.
std::string misfit(const MlxModule& module) {
  const auto& [quant, weight, scales, biases] = module;
  const bool affine = quant.mode == MlxMode::affine;
  if (weight == nullptr || weight->dtype != DType::u32) return "expected a weight of type u32";
  if (affine != (biases != nullptr))
    return affine ? "expected biases, found none" : "expected no biases, found some";
  if (affine ? !is_plain_float(scales->dtype) : scales->dtype != DType::u8)
    return affine ? "expected scales of type f32, f16 or bf16" : "expected scales of type u8";
  if (affine && (biases->dtype != scales->dtype || biases->shape != scales->shape))
    return "expected biases of the type and shape of the scales";
  if (weight->shape.empty() || weight->shape.size() != scales->shape.size())
    return "expected weight and scales of the same number of dimensions";
  if (!std::equal(weight->shape.begin(), weight->shape.end() - 1, scales->shape.begin()))
    return "expected weight and scales of the same number of rows";
  // Sizes in bits of a row, in 128-bit products because both factors come from a file.
  const auto by_weight = static_cast<__int128>(weight->shape.back()) * 32;
  const auto by_scales = static_cast<__int128>(scales->shape.back()) * quant.group * quant.bits;
  if (by_weight != by_scales)
    return fmt::format(
        "expected rows of {} words for {} groups of {} values with {} bits, found {}",
        static_cast<int64_t>(by_scales / 32), scales->shape.back(), quant.group, quant.bits,
        weight->shape.back());
  return {};
}

}  // namespace

Status add_json_metadata(std::string_view text, const std::string& file, std::string_view prefix,
                         Checkpoint& checkpoint) {
  KAPITSA_ASSIGN(const json::value value, parse_json(replace_infinity(text), file));
  if (!value.is_object())
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: expected a JSON object, found another value", file)};
  return Flattener(file, checkpoint).add(std::string(prefix), value);
}

Result<Checkpoint> read_hf(const std::filesystem::path& folder) {
  Checkpoint checkpoint(Format::hf, folder);
  KAPITSA_TRY(add_json_file(folder / "config.json", "", checkpoint));
  const auto generation = folder / "generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(generation, ignored))
    KAPITSA_TRY(add_json_file(generation, "generation_config", checkpoint));
  KAPITSA_TRY(add_safetensors_folder(folder, checkpoint));
  if (says_mlx(checkpoint)) checkpoint.set_format(Format::mlx);
  return checkpoint;
}

Result<std::optional<MlxModule>> find_mlx_module(const Checkpoint& checkpoint,
                                                 std::string_view path) {
  MlxModule module;
  module.scales = checkpoint.find(fmt::format("{}.scales", path));
  if (module.scales == nullptr) return std::optional<MlxModule>();
  module.weight = checkpoint.find(fmt::format("{}.weight", path));
  module.biases = checkpoint.find(fmt::format("{}.biases", path));
  std::string prefix = fmt::format("{}.{}", kSettings, path);
  const bool has_own = checkpoint.has(prefix + ".bits") || checkpoint.has(prefix + ".group_size") ||
                       checkpoint.has(prefix + ".mode");
  if (!has_own) prefix = kSettings;
  KAPITSA_ASSIGN(module.quant, read_quant(checkpoint, prefix));
  if (const std::string reason = misfit(module); !reason.empty())
    return Error{ErrorCode::corrupt_file,
                 fmt::format("{}: module {}: {}", checkpoint.path().string(), quote(path), reason)};
  return std::optional<MlxModule>(module);
}

}  // namespace kapitsa::weights
