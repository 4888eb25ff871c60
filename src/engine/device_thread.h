// The device thread: owns the program and every live sequence, runs passes, samples, and sends
// events. Other threads reach it only through the inbox (new requests and cancellations).
#pragma once

#include "engine/block_decoder.h"
#include "engine/loader.h"
#include "engine/pass_builder.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace kapitsa::engine {

// A checked, tokenised request on its way to the device thread.
struct Job {
  RequestId id = 0;
  EventSink sink;
  std::vector<int32_t> tokens;  // the prompt, at least one
  sample::SamplerParams sampling;
  std::optional<float> confidence;  // block diffusion only
  int32_t max_tokens = 1;
  bool ignore_eos = false;
  bool show_control = false;
  std::vector<std::string> stops;
  Clock::time_point submitted;
};

class DeviceThread {
public:
  // `loaded` must outlive this object.
  explicit DeviceThread(Loaded& loaded, int32_t max_sequences);
  ~DeviceThread();

  void submit(Job job);
  void cancel(RequestId id);

private:
  // Work is done in turns; all below runs on the thread.
  void loop();
  bool take_inbox();  // waits while there is nothing to do; false: stop
  void admit();
  void run_turn();
  void decode(std::span<Sequence* const> sequences);
  void prefill(Sequence& sequence, int32_t n);
  // Draws the sequence's next token from output row `output` of the last pass.
  void draw(Sequence& sequence, std::span<const float> logits);
  void remove_ended();

  Loaded& loaded_;
  kv::PagePool pages_;
  std::vector<int32_t> free_state_slots_;
  std::vector<std::unique_ptr<Sequence>> live_;
  std::deque<Job> waiting_;
  PassBuilder builder_;
  std::optional<BlockDecoder>
      blocks_;  // of a block-diffusion model, in place of decode and prefill
  Turn turn_;
  std::vector<Candidate> candidates_;
  std::vector<Sequence*> decoding_;
  sample::SamplerScratch scratch_;
  int64_t n_served_ = 0;  // pieces and rows so far: the scheduler's clock

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Job> inbox_;                // guarded by mutex_
  std::vector<RequestId> cancellations_;  // guarded by mutex_
  bool stop_ = false;                     // guarded by mutex_

  std::thread thread_;  // last: starts when everything else is there
};

}  // namespace kapitsa::engine
