// What templates compute with: Python's None, bool, int (64 bits), float, str, list, tuple, dict,
// and Jinja's undefined, namespace and functions. A Value is small and cheap to copy; containers
// are shared, as in Python. Destroying deeply nested containers does not recurse.
#pragma once

#include "base/check.h"
#include "text/jinja/str.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace kapitsa::text::jinja {

struct List;
class Dict;
struct Function;
struct LoopState;

// Undefined remembers what was missing, for the error when it is used.
struct Undefined {
  std::shared_ptr<const std::string> what;  // e.g. "'x' is undefined"; null: nothing to say
};
struct None {};
struct Namespace {
  std::shared_ptr<Dict> attributes;
};

class Value {
public:
  // Order of the variant below.
  enum class Kind : uint8_t {
    undefined,
    none,
    boolean,
    integer,
    real,
    string,
    list,
    dict,
    name_space,
    loop,
    function,
  };

  Value() = default;  // undefined
  Value(None) : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(int64_t{value}) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(Str value) : data_(std::make_shared<const Str>(std::move(value))) {}
  Value(std::string_view trusted) : Value(Str(trusted)) {}
  Value(const char* trusted) : Value(Str(trusted)) {}
  Value(std::shared_ptr<List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<Dict> dict) : data_(std::move(dict)) {}
  Value(Namespace value) : data_(std::move(value)) {}
  Value(std::shared_ptr<const LoopState> loop) : data_(std::move(loop)) {}
  Value(std::shared_ptr<const Function> function) : data_(std::move(function)) {}

  static Value undefined(std::string what);
  static Value user_text(std::string text) { return Str(std::move(text), Str::Origin::user); }
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict();

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind k) const { return kind() == k; }
  bool is_undefined() const { return is(Kind::undefined); }
  bool is_none() const { return is(Kind::none); }
  bool is_string() const { return is(Kind::string); }
  bool is_list() const { return is(Kind::list); }  // list or tuple
  bool is_dict() const { return is(Kind::dict); }
  bool is_number() const { return is_integral() || is(Kind::real); }
  bool is_integral() const { return is(Kind::integer) || is(Kind::boolean); }

  // Each requires the matching kind.
  bool boolean() const { return *get<bool>(); }
  double real() const { return *get<double>(); }
  const Str& string() const { return **get<std::shared_ptr<const Str>>(); }
  const std::shared_ptr<List>& as_list() const { return *get<std::shared_ptr<List>>(); }
  const std::shared_ptr<Dict>& as_dict() const { return *get<std::shared_ptr<Dict>>(); }
  const std::shared_ptr<Dict>& attributes() const { return get<Namespace>()->attributes; }
  const LoopState& loop() const { return **get<std::shared_ptr<const LoopState>>(); }
  const Function& function() const { return **get<std::shared_ptr<const Function>>(); }
  const std::string* undefined_what() const { return get<Undefined>()->what.get(); }

  int64_t integral() const;  // integer or boolean
  double number() const;     // integer, boolean or real

  bool truthy() const;
  // Python's type name, for messages: 'str', 'NoneType', ...
  std::string_view type_name() const;
  // The object that a container value points to, for identity; null for the others.
  const void* address() const;

private:
  template <typename T>
  const T* get() const {
    const T* value = std::get_if<T>(&data_);
    KAPITSA_CHECK(value, "value of another kind");
    return value;
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Str>,
               std::shared_ptr<List>, std::shared_ptr<Dict>, Namespace,
               std::shared_ptr<const LoopState>, std::shared_ptr<const Function>>
      data_;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;

  explicit List(std::vector<Value> values = {}, bool tuple = false)
      : items(std::move(values)), is_tuple(tuple) {}
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  ~List();
};

// Insertion-ordered, keys are None, bool, int, float or str. 1, 1.0 and True are one key.
class Dict {
public:
  using Entry = std::pair<Value, Value>;

  Dict() = default;
  Dict(const Dict&) = delete;
  Dict& operator=(const Dict&) = delete;
  ~Dict();

  static bool hashable(const Value& key);
  const Value* find(std::string_view key) const;
  const Value* find(const char* key) const { return find(std::string_view(key)); }
  const Value* find(const Value& key) const;  // null also for a key that is not hashable
  void set(const Value& key, Value value);    // key must be hashable
  bool erase(const Value& key);
  void clear();
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }

private:
  size_t index_of(const std::string& id) const;

  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> index_;  // key identity -> place in entries_
};

// The `loop` variable of one iteration.
struct LoopState {
  std::shared_ptr<const std::vector<Value>> items;
  size_t index0 = 0;
};

struct MacroData;  // jinja/runtime.h

// A builtin by name, a method bound to its object, or a macro.
struct Function {
  enum class Type { builtin, method, macro };
  Type type = Type::builtin;
  std::string name;
  Value self;  // method: the object
  std::shared_ptr<const MacroData> macro;
};

// Work that nested values may cost; shared containers can make a small value exponentially large.
struct WorkLimit {
  int64_t left = 0;
  bool spend(int64_t units = 1) {
    left -= units;
    return left >= 0;
  }
};

// Python's ==. False, too, when the limit is used up.
bool equal(const Value& a, const Value& b, WorkLimit& limit);
// Python's < for numbers, strings, lists and tuples: -1, 0, 1, or nothing when not comparable.
enum class Order { less, equal, greater, incomparable };
Order compare(const Value& a, const Value& b, WorkLimit& limit);

}  // namespace kapitsa::text::jinja
