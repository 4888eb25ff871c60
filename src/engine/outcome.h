// What a sequence tells its sink: tokens, and the one event that ends it. Shared by the ways of
// decoding. After finish() or fail() the sequence sends nothing more.
#pragma once

#include "engine/loader.h"
#include "engine/sequence.h"

namespace kapitsa::engine {

// Appends a token of the answer, and ends the sequence where the token, a stop text or the limit
// does.
void emit_token(Sequence& sequence, Loaded& loaded, int32_t token,
                std::vector<TextDelta::Position> logprobs);
void finish(Sequence& sequence, Loaded& loaded, FinishReason reason);
void fail(Sequence& sequence, const Error& error);

}  // namespace kapitsa::engine
