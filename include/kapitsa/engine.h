// The engine facade: load a model, submit requests, receive events, cancel. server/ and cli/ see
// nothing else of the engine. All functions may be called from any thread; one device thread inside
// runs the model and calls the event sinks. Requests in flight share it fairly: each pass decodes a
// row (or a step of a block) of every sequence, and prompts are prefilled in pieces between passes.
#pragma once

#include "base/result.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace kapitsa {

// --- Loading -----------------------------------------------------------------------------------

// Element type of cached keys and values. automatic: f16 on every backend that has it. int8: signed
// bytes with an f16 scale for each 32, for models whose heads are a multiple of 32.
enum class KvType : uint8_t { automatic, f32, f16, bf16, int8 };

// f32 widens weights exactly and keeps activations in f32: slower, for comparisons.
enum class Compute : uint8_t { fast, f32 };

struct LoadOptions {
  std::filesystem::path model;  // a GGUF file (any shard of it)
  // Instead of `model`: one of synthetic_models() (kapitsa/synthetic.h) with random weights, and
  // how many of its layers (0: all).
  std::string synthetic;
  int32_t synthetic_layers = 0;
  std::string backend;        // "" chooses; "cpu", "ref"
  int32_t context = 0;        // tokens of one sequence; 0: as many as fit in the free memory, at
                              // most what the model was trained for
  int32_t max_sequences = 8;  // requests that run at once; more wait
  int32_t threads = 0;        // CPU; 0: one per available core
  std::string isa;            // CPU instruction set; "" is the best that the machine has
  Compute compute = Compute::fast;
  KvType kv_type = KvType::automatic;
  bool trace = false;         // takes the time of every step of the model (Finished::steps)
  std::string chat_template;  // Jinja source that replaces the model's own; "" keeps it
  std::function<void(const std::string& stage, double share)> progress;  // share in [0, 1]
};

struct ModelInfo {
  std::string name;          // as the file calls itself
  std::string architecture;  // "llama"
  std::string family;        // how it talks, a name of kapitsa/families.h; "" for an unknown one
  std::string quantisation;  // most frequent type of the matrices, "q4_1"
  std::string backend;       // backend and chip
  int64_t n_parameters = 0;
  int64_t file_bytes = 0;
  int64_t memory_bytes = 0;  // copied weights, cache, states and buffers on the device
  // Of the weights: those that the free memory did not hold, so that tokens wait for the disk.
  int64_t weights_on_disk = 0;
  int32_t n_layers = 0;
  int32_t n_vocab = 0;
  int32_t block = 0;  // block diffusion: tokens that are written together; 0: one by one
  int32_t context_trained = 0;
  int32_t context = 0;  // tokens that one request may use, prompt and answer
  bool has_chat_template = false;
  std::string chat_template;  // its Jinja source; empty without one
};

// --- Requests ----------------------------------------------------------------------------------

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text
};

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  std::string reasoning;             // assistant: thinking that came before the content
  std::vector<ToolCall> tool_calls;  // assistant
  std::string tool_call_id;          // tool: which call this answers
  std::string name;
};

struct Tool {
  std::string name;
  std::string description;
  std::string parameters;  // JSON schema as JSON text
};

struct ChatPrompt {
  std::vector<ChatMessage> messages;
  std::vector<Tool> tools;
  bool add_generation_prompt = true;
  std::string answer_begin;  // text that the answer goes on from, after the generation prompt
  std::map<std::string, std::string> template_arguments;  // name -> JSON text, e.g. enable_thinking
};

// Text completes as it is; with parse_special, "<|im_start|>" and the like become special tokens.
struct TextPrompt {
  std::string text;
  bool parse_special = false;
};

struct TokenPrompt {
  std::vector<int32_t> tokens;
};

// How tokens are drawn. The chain is: bias, penalties, temperature, top-k, top-p, min-p, then the
// arg-max of the logits plus Gumbel noise that is a pure function of (seed, choice, position,
// token): the same seed gives the same text, whatever else runs (invariant 2).
// A block-diffusion model draws a position more than once, with the noise of each step. It has no
// order of tokens to penalise and no probability of the text, so penalties and n_logprobs are
// refused.
struct Sampling {
  float temperature = 1.0F;             // 0: arg-max
  int32_t top_k = 0;                    // 0: off
  float top_p = 1.0F;                   // [0, 1]; 1: off, 0: one token
  float min_p = 0.0F;                   // [0, 1]; 0: off
  float repetition_penalty = 1.0F;      // > 0; 1: off
  float frequency_penalty = 0.0F;       // [-2, 2]
  float presence_penalty = 0.0F;        // [-2, 2]
  int32_t penalty_window = -1;          // last tokens that penalties look at; -1: all
  std::map<int32_t, float> logit_bias;  // token -> added to its logit, [-100, 100]
  std::optional<uint64_t> seed;         // absent: drawn at random, reported in Finished
  uint32_t choice = 0;                  // index among the answers to one prompt
  int32_t n_logprobs = -1;              // -1: none; n <= 128: the chosen token and the n likeliest
  // Masked block diffusion only, [0, 1]: a token settles when its probability is above this;
  // absent: as the model says. Lower is faster and worse.
  std::optional<float> confidence;
};

struct Request {
  std::variant<ChatPrompt, TextPrompt, TokenPrompt> prompt;
  Sampling sampling;
  int32_t max_tokens = 0;         // 0: until the model stops or the context is full
  std::vector<std::string> stop;  // the answer ends before the first of these texts
  bool ignore_eos = false;        // benchmarks only: go on to max_tokens
  bool show_control = false;      // write control tokens, except the last, into the text
};

// --- Events ------------------------------------------------------------------------------------

struct TokenLogprob {
  int32_t token = 0;
  std::string bytes;  // the token's own bytes; may be part of a character
  float logprob = 0.0F;
};

// The prompt is being read: how many of its tokens are done.
struct Prefilling {
  int32_t done = 0;
  int32_t total = 0;
  int32_t cached = 0;  // of them, taken from the prefix cache
};

// A piece of the answer: whole UTF-8 characters only; may be empty while a character or a stop text
// is incomplete. Joined, the pieces are the answer.
struct TextDelta {
  std::string text;
  std::vector<int32_t> tokens;
  struct Position {
    TokenLogprob chosen;
    std::vector<TokenLogprob> top;
  };
  std::vector<Position> logprobs;  // one per token, where they were asked for
};

enum class FinishReason : uint8_t { stop_token, stop_text, length, cancelled };

// The time of one step of the model, summed over the passes that decoded or that read a prompt.
struct StepTime {
  std::string label;  // "3.attention"
  std::string op;     // what the backend made of it, or one of those
  bool prefill = false;
  int64_t passes = 0;
  int64_t rows = 0;   // of all passes
  int64_t bytes = 0;  // of weights and states
  double seconds = 0.0;
  double best = 0.0;  // fewest seconds for each row in one pass: what other work did not disturb
};

struct Finished {
  FinishReason reason = FinishReason::stop_token;
  std::string stop_text;  // the one that matched, for stop_text
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  uint64_t seed = 0;
  double queue_seconds = 0.0;
  double prefill_seconds = 0.0;  // from the start of its prefill to its first token or block
  double decode_seconds = 0.0;   // from there to the last token
  int32_t decode_tokens = 0;     // made in them: all but the first, or all where blocks are written
  std::vector<StepTime> steps;   // of all passes since the last request that finished, if traced
};

// Nothing comes after this one. The message is for people.
struct Failed {
  Error error;
};

using Event = std::variant<Prefilling, TextDelta, Finished, Failed>;

// Called on the device thread: must return quickly and must not call the engine, except cancel().
// Every request ends with exactly one Finished or Failed.
using EventSink = std::function<void(const Event&)>;

using RequestId = uint64_t;

class Engine {
public:
  // One line says what is wrong: no such file, a corrupt or foreign one, an unknown architecture,
  // too little memory (and how much would do).
  static Result<std::unique_ptr<Engine>> load(const LoadOptions& options);

  // Cancels what runs, sends the last events, then stops the device thread.
  virtual ~Engine() = default;

  virtual const ModelInfo& model() const = 0;

  // Bytes of weights and cache that decoding one token at this position reads: the bound on its
  // speed.
  virtual int64_t decode_bytes(int64_t position) const = 0;

  // Checks, renders and tokenises the request on the calling thread, then queues it.
  // invalid_argument names the field; context_overflow says how many tokens there are and how many
  // fit.
  virtual Result<RequestId> submit(Request request, EventSink sink) = 0;

  // The request ends with Finished{cancelled} within one pass. An id that has ended is ignored.
  virtual void cancel(RequestId id) = 0;

  // The text that a chat prompt becomes.
  virtual Result<std::string> render(const ChatPrompt& prompt) const = 0;
  virtual Result<std::vector<int32_t>>
  tokenise(const std::variant<ChatPrompt, TextPrompt>& prompt) const = 0;
  // Special tokens are written out.
  virtual Result<std::string> detokenise(const std::vector<int32_t>& tokens) const = 0;
};

}  // namespace kapitsa
