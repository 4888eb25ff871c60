#include "hub/pypi.h"

#include "base/json.h"
#include "hub/json_read.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace kapitsa::hub {
namespace {

namespace json = boost::json;

constexpr std::string_view kAccept = "application/vnd.pypi.simple.v1+json, "
                                     "application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

Result<std::vector<Wheel>> read_json_page(const HttpText& page) {
  const std::string where = shown_url(page.response.url);
  KAPITSA_ASSIGN(const json::value parsed, parse_json(page.body, where));
  const json::array* files = array_of(parsed, "files");
  if (files == nullptr)
    return Error{ErrorCode::corrupt_file, where + ": expected a list 'files', found none"};
  std::vector<Wheel> wheels;
  for (const json::value& item : *files) {
    Wheel wheel{.url = text_of(item, "url"), .file = text_of(item, "filename")};
    if (const json::value* hashes = member(item, "hashes"))
      wheel.sha256 = text_of(*hashes, "sha256");
    wheel.bytes = integer_of(item, "size").value_or(-1);
    wheels.push_back(std::move(wheel));
  }
  return wheels;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool matches = text.substr(at).starts_with(from);
    out += matches ? to : text.substr(at, 1);
    at += matches ? from.size() : 1;
  }
  return out;
}

// The anchors of a page: <a href="URL#sha256=HEX" ...>FILE</a>.
std::vector<Wheel> read_html_page(std::string_view page) {
  std::vector<Wheel> wheels;
  for (size_t at = page.find("<a "); at != page.npos; at = page.find("<a ", at + 1)) {
    const size_t tag_end = page.find('>', at);
    const size_t text_end = page.find("</a>", at);
    if (tag_end == page.npos || text_end == page.npos || text_end < tag_end) break;
    const std::string_view tag = page.substr(at, tag_end - at);
    const size_t href = tag.find("href=\"");
    if (href == tag.npos) continue;
    std::string_view link = tag.substr(href + 6);
    link = link.substr(0, link.find('"'));
    Wheel wheel{.url = replace_all(link.substr(0, link.find('#')), "&amp;", "&"),
                .file = std::string(page.substr(tag_end + 1, text_end - tag_end - 1))};
    const size_t hash = link.find("#sha256=");
    if (hash != link.npos) wheel.sha256 = link.substr(hash + 8);
    wheels.push_back(std::move(wheel));
  }
  return wheels;
}

}  // namespace

Result<Wheel> find_wheel(const HttpClient& client, const std::string& index,
                         const std::string& package, const std::string& version) {
  HttpRequest request{.url = index, .accept = std::string(kAccept)};
  while (request.url.ends_with('/'))
    request.url.pop_back();
  request.url += fmt::format("/{}/", package);
  request.missing_hint = "this index does not have the package " + package;
  KAPITSA_ASSIGN(const HttpText page, client.get_text(request));
  std::vector<Wheel> wheels;
  if (page.response.content_type.find("json") != std::string::npos) {
    KAPITSA_ASSIGN(wheels, read_json_page(page));
  } else {
    wheels = read_html_page(page.body);
  }
  // A wheel's file name starts with the name, "-" as "_", and the version (PEP 427).
  const std::string start = fmt::format("{}-{}-", replace_all(package, "-", "_"), version);
  const auto found = std::find_if(wheels.begin(), wheels.end(), [&](const Wheel& wheel) {
    return wheel.file.starts_with(start) && wheel.file.ends_with(".whl");
  });
  if (found == wheels.end())
    return Error{ErrorCode::not_found, fmt::format("{}: expected a wheel {}*.whl, found none",
                                                   shown_url(request.url), start)};
  KAPITSA_ASSIGN(found->url, resolve_url(page.response.url, found->url));
  return std::move(*found);
}

}  // namespace kapitsa::hub
