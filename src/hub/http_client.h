// HTTP GET for downloads: redirects, retries, stalls, cancelling, and errors in words that a person
// understands. The only file that names libcurl. A token never leaves for another host, https is
// never left for http, certificates are always verified. It knows nothing of files or of models.
#pragma once

#include "base/result.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace kapitsa::hub {

struct HttpOptions {
  std::string user_agent = "kapitsa";
  std::string ca_file =
      {};            // PEM certificates to trust instead of the system's; empty: the system's
  int attempts = 5;  // tries in a row that bring nothing new
  std::chrono::milliseconds first_pause{500};  // before the second try; doubles up to 8 s
  std::chrono::seconds connect_timeout{20};
  std::chrono::seconds stall_timeout{15};  // at less than 1000 bytes a second
  int stalls = 3;                          // tries in a row that may end so
  std::function<bool()> cancelled = {};    // asked about once a second, from any thread
};

struct HttpRequest {
  std::string url;
  std::string bearer_token = {};  // for the host of `url` alone
  std::string accept = {};        // media types
  int64_t offset = 0;             // first byte wanted
  std::string if_range = {};      // strong ETag that the bytes before `offset` came with
  std::string denied_hint = {};   // what to do about 401 and 403
  std::string missing_hint = {};  // what to do about 404
};

struct HttpResponse {
  int status = 0;
  std::string etag = {};     // empty when there is none or only a weak one
  int64_t offset = 0;        // where in the whole the body starts
  int64_t total_bytes = -1;  // of the whole; -1: the server did not say
  std::string url = {};      // after redirects
  std::string content_type = {};
  std::string next_page = {};  // Link: <...>; rel="next"
};

// Takes the body of a successful response; an error from it ends the transfer. `start` comes once
// for each try, before the first byte.
struct HttpReceiver {
  std::function<Status(const HttpResponse&)> start;
  std::function<Status(std::span<const std::byte>)> body;
};

struct HttpText {
  HttpResponse response;
  std::string body;
};

class HttpClient {
public:
  explicit HttpClient(HttpOptions options) : options_(std::move(options)) {}

  // Asks `next_request` before each try, so that a retry can go on where the last one ended. A
  // refused range (416) is a try like a cut: `next_request` must then ask for another one.
  Result<HttpResponse> get(const std::function<HttpRequest(int last_status)>& next_request,
                           const HttpReceiver& receiver) const;

  // The whole body in memory; more than `max_bytes` is an error.
  Result<HttpText> get_text(const HttpRequest& request, size_t max_bytes = size_t{64} << 20) const;

  bool cancelled() const { return options_.cancelled && options_.cancelled(); }
  const HttpOptions& options() const { return options_; }

private:
  HttpOptions options_;
};

// The URL without user, password, query and fragment: what may be shown.
std::string shown_url(std::string_view url);
// "https://host:port", to compare where two URLs lead; empty when it is no http or https URL.
std::string url_origin(std::string_view url);
// A reference as it stands in a document that came from `base`.
Result<std::string> resolve_url(const std::string& base, const std::string& reference);
// Each byte that is not allowed in a path, "/" excepted, as %XX.
std::string escape_path(std::string_view path);

}  // namespace kapitsa::hub
