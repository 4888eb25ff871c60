// What a backend is: a Device that holds memory, and Programs that run a Plan on it. Backends know
// nothing of models, requests or text. Only one thread (the engine's device thread) calls a Device
// and its Programs. Every call returns a Status; after `device_failed` the Device is to be
// reopened.
#pragma once

#include "base/result.h"
#include "plan/plan.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kapitsa::backend {

struct DeviceInfo {
  std::string backend;               // "cpu", "cuda", ...: as --backend takes it
  std::string name;                  // the chip, and what kernels were chosen for it
  int64_t memory_total = 0;          // bytes
  int64_t memory_free = 0;           // bytes, when the Device was opened
  std::vector<int32_t> row_buckets;  // decode passes are padded to one of these row counts
  bool has_graphs = false;           // capture() records something
};

// f32: weights widened exactly, activations and sums in f32: for tests and comparisons.
// fast: what the kernels do best, e.g. 8-bit activations; still row-independent and deterministic.
enum class ComputeMode : uint8_t { fast, f32 };

struct ProgramLimits {
  int32_t max_rows = 512;    // rows of one pass
  int32_t max_outputs = 32;  // rows of one pass whose logits are wanted
  int32_t n_pages = 0;       // of every kv_cache state
  int32_t page_tokens = plan::kGrid;
  int32_t n_state_slots = 1;  // of every recurrent state
  int32_t n_tape_rows = 32;   // of every tape
  ComputeMode compute = ComputeMode::fast;
  bool trace = false;  // take the time of every step (Program::take_step_times)
  // Told, while a Program is loaded, of data of weights that it has copied and reads no more.
  std::function<void(std::span<const std::byte>)> copied = {};
};

// What one step of a lowered Plan took, over all passes of one phase.
struct StepTime {
  std::string label;    // of the model's step, "3.attention"
  const char* op = "";  // that it became, or one of those
  plan::Phase phase = plan::Phase::decode;
  int64_t passes = 0, rows = 0;
  int64_t bytes = 0;     // of weights and states, read and written
  double seconds = 0.0;  // until every thread had finished it
  double best = 0.0;     // fewest seconds for each row in one pass
};

// Bytes that a Program will hold, known before anything is allocated.
struct MemoryNeed {
  int64_t weights = 0;         // copies
  int64_t weights_mapped = 0;  // read where they lie; not n-gram tables: a token reads few rows
  int64_t kv_cache = 0;
  int64_t recurrent = 0;  // states and tapes
  int64_t buffers = 0;    // activations, staging, tables
  // What is allocated, and what should be in memory for a token to need no disk.
  int64_t total() const { return weights + kv_cache + recurrent + buffers; }
  int64_t resident() const { return total() + weights_mapped; }
};

// Plain device memory, for snapshots and for experts that move between tiers.
class DeviceBuffer {
public:
  virtual ~DeviceBuffer() = default;
  virtual int64_t size() const = 0;  // bytes
  // Fail with invalid_argument outside the buffer.
  virtual Status write(int64_t offset, std::span<const std::byte> bytes) = 0;
  virtual Status read(int64_t offset, std::span<std::byte> bytes) = 0;
};

// A Plan bound to a Device: repacked weights, buffers, states. Lowered when it was loaded, so every
// step has a kernel. A pass is checked against the limits; a bad one is invalid_argument.
class Program {
public:
  virtual ~Program() = default;

  // Runs a pass: replays first, then the routine's steps. Asynchronous where the device is; the
  // Pass may be discarded when run returns.
  virtual Status run(const plan::Pass& pass) = 0;

  // Waits for the last run and reports what failed in it.
  virtual Status synchronise() = 0;

  // The rows of a readable buffer after the last run (waits for it), n_rows * width values, valid
  // until the next run. i32 values come as f32: indexes and ids below 2^24 are exact.
  virtual Result<std::span<const float>> read(plan::BufferId buffer, int32_t first_row,
                                              int32_t n_rows) = 0;

  // Fills rows of an f32 input buffer for the next run, whole rows from first_row on.
  virtual Status write(plan::BufferId buffer, int32_t first_row, std::span<const float> values);

  // Records the decode pass of a row bucket once, so that later runs only replay it. Without
  // graphs: does nothing.
  virtual Status capture(int32_t bucket) = 0;

  // Sequence state. clear_state: all recurrent states of a slot as before the first token.
  // commit: replays tape rows of routine 0 into the slot now, instead of at the next pass, so that
  // the state can be published. copy_slots: KV entries of every cache, from -> to, in order.
  virtual Status clear_state(int32_t state_slot) = 0;
  virtual Status commit(int32_t state_slot, std::span<const int32_t> tape_rows) = 0;
  struct SlotCopy {
    int32_t from = 0;
    int32_t to = 0;
  };
  virtual Status copy_slots(std::span<const SlotCopy> copies) = 0;

  // All recurrent states of a slot as bytes (a snapshot), and back. The size is fixed per Program.
  virtual int64_t state_bytes() const = 0;
  virtual Status save_state(int32_t state_slot, std::span<std::byte> bytes) = 0;
  virtual Status load_state(int32_t state_slot, std::span<const std::byte> bytes) = 0;

  virtual const MemoryNeed& memory() const = 0;

  // The times since the last call, where the limits ask for them and the backend takes them.
  virtual std::vector<StepTime> take_step_times() { return {}; }
};

class Device {
public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  // Whether the device has a kernel for this op with these operands; lower() expands the others.
  virtual bool supports(const plan::Plan& plan, const plan::Op& op) const = 0;

  // What load() would need.
  virtual Result<MemoryNeed> memory_need(const plan::Plan& plan, const ProgramLimits& limits) = 0;

  // Lowers the plan and binds it. The plan's weight data must outlive the Program. Fails with
  // unsupported (an op has no kernel) or out_of_memory (says how much is missing).
  virtual Result<std::unique_ptr<Program>> load(const plan::Plan& plan,
                                                const ProgramLimits& limits) = 0;

  virtual Result<std::unique_ptr<DeviceBuffer>> allocate(int64_t bytes) = 0;
};

struct DeviceOptions {
  int32_t n_threads = 0;  // CPU: 0 means one per available core
  // CPU: "" means the best that this machine has. ref: "chunked" takes prompts through recurrences
  // in chunks, by the formulas that fast backends use, instead of token by token.
  std::string force_isa;
};

// A backend of this build: its name, and how to open its best device.
struct BackendEntry {
  const char* name;
  Result<std::unique_ptr<Device>> (*open)(const DeviceOptions& options);
};

// All backends of this build, the preferred one first. ref/ is not among them: tests and doctor
// open it by name.
std::span<const BackendEntry> backends();

// Opens a backend by name ("" means the first that opens; "ref" the reference).
Result<std::unique_ptr<Device>> open_device(const std::string& backend,
                                            const DeviceOptions& options);

}  // namespace kapitsa::backend
