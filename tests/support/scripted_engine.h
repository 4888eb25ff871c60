// An Engine without a model: what it answers is written by the test. Each answer is made by a
// thread of its own, so that answers can be held, cancelled and overtaken like real ones.
#pragma once

#include "kapitsa/engine.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace kapitsa::test {

struct Script {
  std::vector<std::string> pieces;  // of the answer
  FinishReason reason = FinishReason::stop_token;
  std::optional<Error> failure;  // instead of an end
  bool hold = false;             // after the pieces, until it is cancelled or release()d
};

class ScriptedEngine final : public Engine {
public:
  using Writer = std::function<Script(const Request&)>;

  // A byte is a token.
  ScriptedEngine(Writer writer, std::string chat_template, int32_t context)
      : writer_(std::move(writer)) {
    info_.name = "Scripted";
    info_.architecture = "script";
    info_.context = context;
    info_.context_trained = context;
    info_.has_chat_template = true;
    info_.chat_template = std::move(chat_template);
  }

  ~ScriptedEngine() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_)
      thread.join();
  }

  const ModelInfo& model() const override { return info_; }
  int64_t decode_bytes(int64_t) const override { return 0; }

  Result<RequestId> submit(Request request, EventSink sink) override {
    const auto prompt = text_of(request);
    if (static_cast<int32_t>(prompt.size()) >= info_.context)
      return Error{ErrorCode::context_overflow, "too long"};
    const std::lock_guard lock(mutex_);
    const RequestId id = ++last_id_;
    threads_.emplace_back(
        [this, id, script = writer_(request), sink = std::move(sink),
         n_prompt = static_cast<int32_t>(prompt.size())] { play(id, script, sink, n_prompt); });
    return id;
  }

  void cancel(RequestId id) override {
    {
      const std::lock_guard lock(mutex_);
      cancelled_[id] = true;
    }
    changed_.notify_all();
  }

  Result<std::string> render(const ChatPrompt& prompt) const override {
    std::string text;
    for (const ChatMessage& message : prompt.messages)
      text += "<" + message.role + ">" + message.content;
    return text + "<assistant>" + prompt.answer_begin;
  }

  // One token for each byte.
  Result<std::vector<int32_t>>
  tokenise(const std::variant<ChatPrompt, TextPrompt>& prompt) const override {
    const auto* chat = std::get_if<ChatPrompt>(&prompt);
    const std::string text = chat ? *render(*chat) : std::get<TextPrompt>(prompt).text;
    return std::vector<int32_t>(text.begin(), text.end());
  }
  Result<std::string> detokenise(const std::vector<int32_t>& tokens) const override {
    return std::string(tokens.begin(), tokens.end());
  }

  void release() {
    {
      const std::lock_guard lock(mutex_);
      released_ = true;
    }
    changed_.notify_all();
  }
  int n_cancelled() const { return n_cancelled_; }
  int n_ended() const { return n_ended_; }

private:
  std::string text_of(const Request& request) const {
    if (const auto* chat = std::get_if<ChatPrompt>(&request.prompt)) return *render(*chat);
    if (const auto* text = std::get_if<TextPrompt>(&request.prompt)) return text->text;
    return std::string(std::get<TokenPrompt>(request.prompt).tokens.size(), ' ');
  }

  void play(RequestId id, const Script& script, const EventSink& sink, int32_t n_prompt) {
    sink(Prefilling{.done = n_prompt, .total = n_prompt});
    Finished done{.reason = script.reason, .prompt_tokens = n_prompt};
    for (const std::string& piece : script.pieces) {
      sink(TextDelta{.text = piece, .tokens = {1}});
      ++done.completion_tokens;
    }
    if (script.hold) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return released_ || ended_ || cancelled_[id]; });
      if (!released_) done.reason = FinishReason::cancelled;
    }
    if (done.reason == FinishReason::cancelled) ++n_cancelled_;
    if (script.failure) {
      sink(Failed{*script.failure});
    } else {
      sink(done);
    }
    ++n_ended_;
  }

  const Writer writer_;
  ModelInfo info_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<RequestId, bool> cancelled_;
  bool released_ = false;
  bool ended_ = false;
  RequestId last_id_ = 0;
  std::atomic<int> n_cancelled_ = 0;
  std::atomic<int> n_ended_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace kapitsa::test
