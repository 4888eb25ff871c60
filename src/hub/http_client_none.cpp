// In place of http_client.cpp in a build without downloads (KAPITSA_DOWNLOADS=OFF): every request
// fails and says so. Models that are on this machine are found all the same.
#include "hub/http_client.h"

namespace kapitsa::hub {
namespace {

Error no_downloads() {
  return {ErrorCode::unsupported,
          "this build of kapitsa cannot download; copy the model here and name its path"};
}

}  // namespace

Result<HttpResponse> HttpClient::get(const std::function<HttpRequest(int)>& /*next_request*/,
                                     const HttpReceiver& /*receiver*/) const {
  return no_downloads();
}

Result<HttpText> HttpClient::get_text(const HttpRequest& /*request*/, size_t /*max_bytes*/) const {
  return no_downloads();
}

std::string shown_url(std::string_view url) {
  return std::string(url.substr(0, url.find_first_of("?#")));
}

std::string url_origin(std::string_view /*url*/) {
  return {};
}

Result<std::string> resolve_url(const std::string& /*base*/, const std::string& /*reference*/) {
  return no_downloads();
}

std::string escape_path(std::string_view path) {
  return std::string(path);
}

}  // namespace kapitsa::hub
