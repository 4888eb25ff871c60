#include "server/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace kapitsa::server {
namespace {

// "localhost:8080" -> "localhost", "[::1]:80" -> "::1"; in lower case.
std::string host_name(std::string_view host) {
  std::string name;
  if (host.starts_with('[')) {
    name = host.substr(1, host.find(']') == host.npos ? host.npos : host.find(']') - 1);
  } else {
    name = host.substr(0, host.find(':'));
  }
  for (char& c : name)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

bool contains(const std::vector<std::string>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool is_any_address(std::string_view host) {
  return host == "0.0.0.0" || host == "::";
}

bool allowed_host(const AccessPolicy& policy, const std::string& name) {
  if (is_loopback(name) || name == policy.bound_host || contains(policy.more_hosts, name))
    return true;
  // An address, unlike a name, cannot be made to point here by a foreign DNS server.
  return is_any_address(policy.bound_host) &&
         name.find_first_not_of("0123456789.") == std::string::npos;
}

bool allowed_origin(const AccessPolicy& policy, std::string_view origin, std::string_view host) {
  if (contains(policy.origins, "*") || contains(policy.origins, origin)) return true;
  // The page that this server itself delivers.
  const size_t scheme = origin.find("://");
  return scheme != origin.npos && !host.empty() && origin.substr(scheme + 3) == host;
}

std::string_view given_key(const http::Request& request) {
  const std::string_view bearer = request.header("authorization");
  constexpr std::string_view kBearer = "bearer ";
  if (bearer.size() >= kBearer.size() &&
      std::equal(kBearer.begin(), kBearer.end(), bearer.begin(),
                 [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); }))
    return bearer.substr(kBearer.size());
  return request.header("x-api-key");
}

}  // namespace

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host == "127.0.0.1" || host.starts_with("127.");
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0U : 1U;
  for (size_t i = 0; i < a.size() && !b.empty(); ++i)
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i % b.size()]);
  return difference == 0;
}

api::ApiError check_access(const AccessPolicy& policy, const http::Request& request, bool open) {
  const std::string_view host = request.header("host");
  if (!host.empty() && !allowed_host(policy, host_name(host)))
    return {.status = 403,
            .message = fmt::format("the Host header names '{}', which is not this server; allow it "
                                   "with --allow-host",
                                   host),
            .code = "host_not_allowed"};
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && !allowed_origin(policy, origin, host))
    return {.status = 403,
            .message = fmt::format("pages of '{}' may not use this server; allow them with "
                                   "--allow-origin",
                                   origin),
            .code = "origin_not_allowed"};
  if (!open && !policy.api_key.empty() &&
      !equal_in_constant_time(given_key(request), policy.api_key))
    return {.status = 401,
            .message = "the API key is missing or wrong; send it as \"Authorization: Bearer KEY\" "
                       "or \"x-api-key: KEY\"",
            .code = "invalid_api_key"};
  return {};
}

http::Headers cors_headers(const AccessPolicy& policy, const http::Request& request) {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || (!contains(policy.origins, "*") && !contains(policy.origins, origin)))
    return {};
  return {{"access-control-allow-origin", std::string(origin)},
          {"vary", "origin"},
          {"access-control-allow-methods", "GET, POST, OPTIONS"},
          {"access-control-allow-headers", "*, authorization"},
          {"access-control-max-age", "600"}};
}

}  // namespace kapitsa::server
