#include "hub/http_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace kapitsa::hub {
namespace {

constexpr int kMaxRedirects = 10;
constexpr int64_t kProgressBytes = int64_t{1} << 20;  // that make the count of tries start anew
constexpr int64_t kSlowest = 1000;                    // bytes per second; slower is a stall
constexpr std::chrono::seconds kMaxRetryAfter{60};
constexpr std::chrono::milliseconds kMaxPause{8000};

struct CurlDeleter {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  void operator()(char* text) const { curl_free(text); }
};
template <typename T>
using CurlPointer = std::unique_ptr<T, CurlDeleter>;

// libcurl wants this once, before any thread uses it.
void initialise() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Text of a server in an error message: one line, printable, short.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 200))
    out.push_back(c >= ' ' && c <= '~' ? c : ' ');
  return out;
}

std::string url_part(std::string_view url, CURLUPart part) {
  initialise();
  const CurlPointer<CURLU> parsed(curl_url());
  if (curl_url_set(parsed.get(), CURLUPART_URL, std::string(url).c_str(), 0) != CURLUE_OK)
    return {};
  char* text = nullptr;
  if (curl_url_get(parsed.get(), part, &text, 0) != CURLUE_OK) return {};
  const CurlPointer<char> owner(text);
  return text;
}

// One try of one request: what libcurl's callbacks work on.
struct Try {
  const HttpReceiver& receiver;
  const HttpOptions& options;
  CURL* curl = nullptr;
  HttpResponse response;
  std::string retry_after;
  std::string server_message;
  int64_t length = -1;  // Content-Length
  int64_t received = 0;
  int64_t since_sign = 0;  // bytes received since last_sign
  bool started = false;
  bool stalled = false;
  std::chrono::steady_clock::time_point last_sign = std::chrono::steady_clock::now();
  Status receiver_status;

  bool successful() const { return response.status >= 200 && response.status < 300; }
  // A sign of life: a header, or so many bytes that they would do for a whole stall_timeout.
  void sign() {
    since_sign = 0;
    last_sign = std::chrono::steady_clock::now();
  }
  void take_header(std::string_view line);
  void take_content_range(std::string_view value);
  Status start();
};

void Try::take_content_range(std::string_view value) {
  // bytes FIRST-LAST/TOTAL, RFC 9110 section 14.4
  const size_t dash = value.find('-');
  const size_t slash = value.find('/');
  if (!value.starts_with("bytes ") || dash == value.npos || slash == value.npos) return;
  response.offset = number(value.substr(6, dash - 6)).value_or(-1);
  response.total_bytes = number(value.substr(slash + 1)).value_or(-1);
}

void Try::take_header(std::string_view line) {
  if (line.starts_with("HTTP/")) {  // the first line of each response, those of redirects included
    response = {};
    response.offset = 0;
    retry_after.clear();
    server_message.clear();
    length = -1;
    const size_t space = line.find(' ');
    const std::string_view code = space == line.npos ? line : line.substr(space + 1, 3);
    response.status = static_cast<int>(number(code).value_or(0));
    return;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return;
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trim(line.substr(colon + 1));
  if (name == "etag") {
    if (value.starts_with('"')) response.etag = value;
  } else if (name == "content-length") {
    length = number(value).value_or(-1);
  } else if (name == "content-range") {
    take_content_range(value);
  } else if (name == "content-type") {
    response.content_type = value;
  } else if (name == "retry-after") {
    retry_after = value;
  } else if (name == "x-error-message") {
    server_message = printable(value);
  } else if (name == "link" && value.find("rel=\"next\"") != value.npos) {
    const size_t open = value.find('<');
    const size_t close = value.find('>');
    if (open != value.npos && close != value.npos && open < close)
      response.next_page = value.substr(open + 1, close - open - 1);
  }
}

Status Try::start() {
  started = true;
  if (response.status != 206) {
    response.offset = 0;
    response.total_bytes = length;
  }
  char* url = nullptr;
  curl_easy_getinfo(curl, CURLINFO_EFFECTIVE_URL, &url);
  if (url != nullptr) response.url = url;
  return receiver.start(response);
}

size_t on_header(char* data, size_t size, size_t n, void* user) {
  auto& transfer = *static_cast<Try*>(user);
  transfer.take_header({data, size * n});
  transfer.sign();
  return size * n;
}

size_t on_body(char* data, size_t size, size_t n, void* user) {
  auto& transfer = *static_cast<Try*>(user);
  if (!transfer.successful()) return size * n;
  if (!transfer.started) transfer.receiver_status = transfer.start();
  if (transfer.receiver_status) {
    transfer.receiver_status =
        transfer.receiver.body(std::as_bytes(std::span<const char>(data, size * n)));
  }
  if (!transfer.receiver_status) return 0;
  transfer.received += static_cast<int64_t>(size * n);
  transfer.since_sign += static_cast<int64_t>(size * n);
  if (transfer.since_sign >= kSlowest * transfer.options.stall_timeout.count()) transfer.sign();
  return size * n;
}

// Comes at least about once a second; what it returns ends the transfer.
int on_tick(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Try*>(user);
  const HttpOptions& options = transfer.options;
  transfer.stalled = std::chrono::steady_clock::now() - transfer.last_sign > options.stall_timeout;
  return transfer.stalled || (options.cancelled && options.cancelled()) ? 1 : 0;
}

CurlPointer<curl_slist> set_options(CURL* curl, const HttpRequest& request, Try& transfer) {
  const HttpOptions& options = transfer.options;
  const bool secure = request.url.starts_with("https:");
  const auto set = [curl](CURLoption option, auto value) { curl_easy_setopt(curl, option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, long{kMaxRedirects});
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_USERAGENT, options.user_agent.c_str());
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(options.connect_timeout.count()));
  if (!options.ca_file.empty()) set(CURLOPT_CAINFO, options.ca_file.c_str());
  // libcurl sends a token that it is given this way to the first host only.
  if (!request.bearer_token.empty()) {
    set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    set(CURLOPT_XOAUTH2_BEARER, request.bearer_token.c_str());
  }
  curl_slist* headers = nullptr;
  if (!request.accept.empty())
    headers = curl_slist_append(headers, ("Accept: " + request.accept).c_str());
  if (request.offset > 0) {
    set(CURLOPT_RANGE, fmt::format("{}-", request.offset).c_str());
    if (!request.if_range.empty())
      headers = curl_slist_append(headers, ("If-Range: " + request.if_range).c_str());
  }
  if (headers != nullptr) set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_HEADERFUNCTION, &on_header);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_XFERINFOFUNCTION, &on_tick);
  set(CURLOPT_XFERINFODATA, &transfer);
  set(CURLOPT_NOPROGRESS, 0L);
  return CurlPointer<curl_slist>(headers);
}

enum class Verdict { done, fatal, transient, offline };

// How a try ended; `error` says it to a person unless it is done.
struct Outcome {
  Verdict verdict = Verdict::done;
  Error error = {};
};

Outcome judge_status(const HttpRequest& request, const Try& transfer) {
  const int status = transfer.response.status;
  if (transfer.successful()) return {};
  const std::string where = shown_url(request.url);
  const std::string said =
      transfer.server_message.empty() ? "" : fmt::format(" ({})", transfer.server_message);
  const auto hint = [](const std::string& text) { return text.empty() ? "" : "; " + text; };
  if (status == 401 || status == 403)
    return {Verdict::fatal,
            {ErrorCode::io, fmt::format("{}: access denied (HTTP {}){}{}", where, status, said,
                                        hint(request.denied_hint))}};
  if (status == 404 || status == 410)
    return {Verdict::fatal,
            {ErrorCode::not_found, fmt::format("{}: not there (HTTP {}){}{}", where, status, said,
                                               hint(request.missing_hint))}};
  if (status == 416 && request.offset > 0)
    return {
        Verdict::transient,
        {ErrorCode::io, fmt::format("{}: no bytes from {} on (HTTP 416)", where, request.offset)}};
  const bool busy = status == 408 || status == 425 || status == 429 || status >= 500;
  const char* reason = status == 429 ? "too many requests; try again later" : "the server failed";
  return {busy ? Verdict::transient : Verdict::fatal,
          {ErrorCode::io, fmt::format("{}: {} (HTTP {}){}", where,
                                      busy ? reason : "unexpected answer", status, said)}};
}

Outcome judge(CURLcode code, const char* details, const HttpRequest& request, const Try& transfer) {
  const auto fail = [&](Verdict verdict, std::string reason) {
    return Outcome{verdict, {ErrorCode::io, fmt::format("{}: {}", shown_url(request.url), reason)}};
  };
  const std::string host = url_part(request.url, CURLUPART_HOST);
  const std::string text = *details != '\0' ? details : curl_easy_strerror(code);
  switch (code) {
  case CURLE_OK: return judge_status(request, transfer);
  case CURLE_WRITE_ERROR:
    if (!transfer.receiver_status) return {Verdict::fatal, transfer.receiver_status.error()};
    return fail(Verdict::fatal, text);
  case CURLE_ABORTED_BY_CALLBACK:
    if (transfer.stalled)
      return fail(Verdict::transient,
                  fmt::format("stalled after {} bytes: less than {} bytes a second for {} s",
                              transfer.received, kSlowest, transfer.options.stall_timeout.count()));
    return {Verdict::fatal, {ErrorCode::cancelled, "the download was stopped"}};
  case CURLE_COULDNT_RESOLVE_HOST:
  case CURLE_COULDNT_RESOLVE_PROXY:
    return fail(Verdict::offline,
                fmt::format("cannot find the host {}; is this machine offline, or is a proxy "
                            "needed (https_proxy)?",
                            code == CURLE_COULDNT_RESOLVE_HOST ? host : "of the proxy"));
  case CURLE_COULDNT_CONNECT: return fail(Verdict::offline, fmt::format("no connection: {}", text));
  case CURLE_PARTIAL_FILE:
  case CURLE_RECV_ERROR:
  case CURLE_SEND_ERROR:
  case CURLE_GOT_NOTHING:
  case CURLE_HTTP2:
  case CURLE_HTTP2_STREAM:
    return fail(Verdict::transient,
                fmt::format("the connection was cut after {} of {} bytes ({})", transfer.received,
                            transfer.length < 0 ? "?" : std::to_string(transfer.length), text));
  case CURLE_OPERATION_TIMEDOUT:
    return fail(Verdict::offline,
                fmt::format("no connection within {} s", transfer.options.connect_timeout.count()));
  case CURLE_TOO_MANY_REDIRECTS:
    return fail(Verdict::fatal, fmt::format("more than {} redirects", kMaxRedirects));
  case CURLE_UNSUPPORTED_PROTOCOL:
    return fail(Verdict::fatal, transfer.response.status >= 300 && transfer.response.status < 400
                                    ? "redirected away from https and http, or from https to http"
                                    : "expected an address that starts with https:// or http://");
  case CURLE_URL_MALFORMAT: return fail(Verdict::fatal, "not a valid address");
  case CURLE_PEER_FAILED_VERIFICATION:
  case CURLE_SSL_CACERT_BADFILE:
    return fail(Verdict::fatal,
                fmt::format("the certificate of {} cannot be verified ({}); for a network that "
                            "has its own, set SSL_CERT_FILE",
                            host, text));
  default: return fail(Verdict::fatal, text);
  }
}

// False when it was cancelled meanwhile.
bool pause(std::chrono::milliseconds length, const HttpClient& client) {
  constexpr std::chrono::milliseconds kSlice{50};
  const auto end = std::chrono::steady_clock::now() + length;
  while (std::chrono::steady_clock::now() < end) {
    if (client.cancelled()) return false;
    std::this_thread::sleep_for(std::min(length, kSlice));
  }
  return !client.cancelled();
}

}  // namespace

Result<HttpResponse> HttpClient::get(const std::function<HttpRequest(int)>& next_request,
                                     const HttpReceiver& receiver) const {
  initialise();
  bool ever_received = false;
  int64_t new_bytes = 0;
  int last_status = 0;
  int n_stalls = 0;  // in a row
  std::chrono::milliseconds wait = options_.first_pause;
  for (int attempt = 1;;) {
    const HttpRequest request = next_request(last_status);
    const CurlPointer<CURL> curl(curl_easy_init());
    if (curl == nullptr) return Error{ErrorCode::out_of_memory, "no memory for a connection"};
    Try transfer{.receiver = receiver, .options = options_, .curl = curl.get()};
    const auto headers = set_options(curl.get(), request, transfer);
    char details[CURL_ERROR_SIZE] = "";
    curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, &details[0]);
    const CURLcode code = curl_easy_perform(curl.get());
    if (code == CURLE_OK && transfer.successful() && !transfer.started)
      KAPITSA_TRY(transfer.start());  // an empty body
    Outcome outcome = judge(code, &details[0], request, transfer);
    if (outcome.verdict == Verdict::done) return transfer.response;
    if (cancelled()) return Error{ErrorCode::cancelled, "the download was stopped"};
    ever_received = ever_received || transfer.received > 0;
    new_bytes += transfer.received;
    last_status = transfer.response.status;
    if (new_bytes >= kProgressBytes) {
      attempt = 1;
      n_stalls = 0;
      new_bytes = 0;
      wait = options_.first_pause;
    }
    n_stalls = transfer.stalled ? n_stalls + 1 : 0;
    // A network that was never there fails at once; one that went away may come back.
    const bool again = outcome.verdict == Verdict::transient ||
                       (outcome.verdict == Verdict::offline && ever_received);
    if (!again) return outcome.error;
    if (attempt >= options_.attempts || n_stalls >= options_.stalls) {
      outcome.error.message += fmt::format("; gave up after {} tries", attempt);
      return outcome.error;
    }
    const std::chrono::seconds asked(number(transfer.retry_after).value_or(0));
    if (asked > kMaxRetryAfter) {
      outcome.error.message += fmt::format("; the server asks to wait {} s", asked.count());
      return outcome.error;
    }
    if (!pause(std::max<std::chrono::milliseconds>(wait, asked), *this))
      return Error{ErrorCode::cancelled, "the download was stopped"};
    wait = std::min(wait * 2, kMaxPause);
    ++attempt;
  }
}

Result<HttpText> HttpClient::get_text(const HttpRequest& request, size_t max_bytes) const {
  HttpText text;
  HttpReceiver receiver;
  receiver.start = [&](const HttpResponse&) {
    text.body.clear();
    return Status();
  };
  receiver.body = [&](std::span<const std::byte> bytes) -> Status {
    if (text.body.size() + bytes.size() > max_bytes)
      return Error{ErrorCode::io, fmt::format("{}: expected at most {} bytes, found more",
                                              shown_url(request.url), max_bytes)};
    for (const std::byte b : bytes)
      text.body.push_back(static_cast<char>(b));
    return {};
  };
  KAPITSA_ASSIGN(text.response, get([&](int) { return request; }, receiver));
  return text;
}

std::string shown_url(std::string_view url) {
  std::string text(url.substr(0, url.find_first_of("?#")));
  const size_t scheme = text.find("://");
  if (scheme == std::string::npos) return text;
  const size_t host = scheme + 3;
  const size_t at = text.substr(0, text.find('/', host)).rfind('@');
  if (at != std::string::npos && at >= host) text.erase(host, at + 1 - host);
  return printable(text);
}

std::string url_origin(std::string_view url) {
  const std::string scheme = url_part(url, CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return {};
  const std::string port = url_part(url, CURLUPART_PORT);
  return fmt::format("{}://{}:{}", scheme, lower(url_part(url, CURLUPART_HOST)),
                     port.empty() ? (scheme == "https" ? "443" : "80") : port);
}

Result<std::string> resolve_url(const std::string& base, const std::string& reference) {
  initialise();
  const CurlPointer<CURLU> url(curl_url());
  char* text = nullptr;
  if (curl_url_set(url.get(), CURLUPART_URL, base.c_str(), 0) != CURLUE_OK ||
      curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), 0) != CURLUE_OK ||
      curl_url_get(url.get(), CURLUPART_URL, &text, 0) != CURLUE_OK)
    return Error{ErrorCode::io, fmt::format("{}: expected an address, found '{}'", shown_url(base),
                                            printable(reference))};
  const CurlPointer<char> owner(text);
  return std::string(text);
}

std::string escape_path(std::string_view path) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
  std::string out;
  for (const char c : path) {
    if (kPlain.find(c) != std::string_view::npos)
      out.push_back(c);
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace kapitsa::hub
