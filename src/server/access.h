// Who may talk to the server: the Host header against DNS rebinding, the Origin header against web
// pages of others, and the key. Pure functions.
#pragma once

#include "server/api/error.h"
#include "server/http/message.h"

#include <cstdint>
#include <string>
#include <vector>

namespace kapitsa::server {

struct AccessPolicy {
  std::string bound_host = "127.0.0.1";
  std::vector<std::string> more_hosts;  // further names that the Host header may have
  std::vector<std::string> origins;     // web pages that may call; "*": all
  std::string api_key;                  // empty: none is asked for
};

// Without an error: the request may pass. `open`: the path needs no key (health).
api::ApiError check_access(const AccessPolicy& policy, const http::Request& request, bool open);
// The headers by which a browser lets a page of an allowed origin read the answer.
http::Headers cors_headers(const AccessPolicy& policy, const http::Request& request);

bool is_loopback(std::string_view host);
// Takes the same time wherever the texts differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace kapitsa::server
