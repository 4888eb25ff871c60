// An HTTP request and a reply as plain values. Nothing here or in exchange.h names the library that
// carries them.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kapitsa::server::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // "GET"
  std::string path;    // without the query, as it was sent
  Headers headers;     // names in lower case
  std::string body;

  // The first header of this name (in lower case); empty when there is none.
  std::string_view header(std::string_view name) const {
    for (const auto& [key, value] : headers)
      if (key == name) return value;
    return {};
  }
  bool has_header(std::string_view name) const {
    for (const auto& [key, value] : headers)
      if (key == name) return true;
    return false;
  }
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  Headers headers;
  std::string body;
};

// "Not Found"
std::string_view reason_phrase(int status);

}  // namespace kapitsa::server::http
