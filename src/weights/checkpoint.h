// A checkpoint as model code sees it, whatever the file format: named tensors that point into
// mapped files, and typed metadata. Readers (gguf.h, hf.h) fill it; nothing here knows a format's
// bytes. Tensor data stays valid for as long as the Checkpoint lives, also when it is moved. Every
// lookup that fails says in one line which file and key, what was expected and what was found.
#pragma once

#include "base/dtype.h"
#include "base/file.h"
#include "base/result.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace kapitsa::weights {

enum class Format { gguf, hf, mlx };
const char* to_string(Format format);

struct Tensor {
  std::string name;
  DType dtype = DType::f32;
  // Outermost first, as Hugging Face writes it: (out, in) or (experts, out, in). GGUF stores the
  // reverse. Empty for a single value without dimensions. No dimension is zero.
  std::vector<int64_t> shape;
  // The rows one after another, dtype_bytes(dtype, n_elements()) bytes. A file may place them at
  // any address: kernels that need alignment copy.
  std::span<const std::byte> data;

  int64_t n_elements() const;
};

// Many short strings (a vocabulary) in one block of memory.
class StringList {
public:
  void reserve(size_t n) { ends_.reserve(n); }
  void push_back(std::string_view text) {
    text_.append(text);
    ends_.push_back(text_.size());
  }
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

private:
  std::string text_;
  std::vector<size_t> ends_;  // one past the last byte of each string
};

// uint64_t only for a value that int64_t does not hold.
using Value = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<bool>,
                           std::vector<int64_t>, std::vector<double>, StringList>;

// The value for an error message: its type and, for a short one, its content.
std::string describe(const Value& value);

class Checkpoint {
public:
  static constexpr int64_t kMinInteger = std::numeric_limits<int64_t>::min();
  static constexpr int64_t kMaxInteger = std::numeric_limits<int64_t>::max();
  static constexpr double kMaxNumber = std::numeric_limits<double>::max();

  Checkpoint(Format format, std::filesystem::path path);
  Checkpoint(Checkpoint&&) noexcept = default;
  Checkpoint& operator=(Checkpoint&&) noexcept = default;
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  Format format() const { return format_; }
  // The file or folder that the user named.
  const std::filesystem::path& path() const { return path_; }

  // In the order of the files. find() returns nullptr for an absent name.
  const std::deque<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;
  // find(), but a checkpoint that has a maker makes the tensor that is missing, and has it from
  // then on. Not for several threads at once.
  const Tensor* find_or_make(std::string_view name, const std::vector<int64_t>& shape) const;

  // Keys of nested JSON are joined with '.': rope_parameters.rope_theta. A JSON null is absent.
  bool has(std::string_view key) const { return value(key) != nullptr; }
  const Value* value(std::string_view key) const;
  const std::map<std::string, Value, std::less<>>& metadata() const { return metadata_; }

  // An integer of any width that lies in min..max.
  Result<int64_t> integer(std::string_view key, int64_t min = kMinInteger,
                          int64_t max = kMaxInteger) const;
  // A floating-point value or an integer, finite and in min..max. f32 values convert exactly.
  Result<double> number(std::string_view key, double min = -kMaxNumber,
                        double max = kMaxNumber) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string> string(std::string_view key) const;

  // The fallback when the key is absent; a present value of the wrong type or range is an error.
  Result<int64_t> integer_or(std::string_view key, int64_t fallback, int64_t min = kMinInteger,
                             int64_t max = kMaxInteger) const;
  Result<double> number_or(std::string_view key, double fallback, double min = -kMaxNumber,
                           double max = kMaxNumber) const;
  Result<bool> boolean_or(std::string_view key, bool fallback) const;
  Result<std::string> string_or(std::string_view key, std::string_view fallback) const;

  // Arrays; a single value counts as an array of one. An empty array is an array of any type.
  Result<std::vector<int64_t>> integers(std::string_view key, int64_t min = kMinInteger,
                                        int64_t max = kMaxInteger) const;
  Result<std::vector<double>> numbers(std::string_view key, double min = -kMaxNumber,
                                      double max = kMaxNumber) const;
  Result<std::vector<bool>> booleans(std::string_view key) const;
  // Views into this checkpoint.
  Result<std::vector<std::string_view>> strings(std::string_view key) const;
  // One integer for each of n layers: an array of n, or one integer that serves all.
  Result<std::vector<int64_t>> integer_per_layer(std::string_view key, int64_t n,
                                                 int64_t min = kMinInteger,
                                                 int64_t max = kMaxInteger) const;

  // What this part of a file holds is read no more, or seldom: its pages leave the process.
  void release(std::span<const std::byte> part) const;

  // For readers. keep() takes over a mapping that tensors point into. set() and add() return false
  // when the key or name exists already.
  void set_format(Format format) { format_ = format; }
  void keep(MappedFile file) { files_.push_back(std::move(file)); }
  bool set(std::string key, Value value);
  bool add(Tensor tensor);
  // For checkpoints without a file: called for a name that is asked for and not there. The data of
  // the tensor that it returns must live as long as the maker, which the checkpoint keeps.
  using Maker = std::function<std::optional<Tensor>(std::string_view name,
                                                    const std::vector<int64_t>& shape)>;
  void set_maker(Maker maker) { maker_ = std::move(maker); }

private:
  Error missing(std::string_view key, std::string_view expected) const;
  Error mismatch(std::string_view key, std::string_view expected, std::string_view found) const;

  Format format_;
  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::map<std::string, Value, std::less<>> metadata_;
  // Mutable for find_or_make(), which changes nothing that a reader has seen.
  mutable std::deque<Tensor> tensors_;  // a deque, because by_name_ points into it
  mutable std::unordered_map<std::string_view, const Tensor*> by_name_;
  Maker maker_;
};

}  // namespace kapitsa::weights
