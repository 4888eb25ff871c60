// The conversation of a request, put so that the model's template takes it. Templates differ in
// what they refuse: a second system message, two users in a row, tools.
#pragma once

#include "server/api/call.h"

#include <vector>

namespace kapitsa::server::api {

// Renders small conversations to see what the template takes.
void probe_template(const Engine& engine, ModelFacts& facts);

// Messages keep their places, so that a conversation that grows keeps its beginning: a system
// message that the template refuses becomes user text where it stands, and neighbours of one role
// become one message where they have to.
std::vector<ChatMessage> fitted(std::vector<ChatMessage> messages, const ModelFacts& facts);

}  // namespace kapitsa::server::api
