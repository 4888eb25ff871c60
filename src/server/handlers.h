// From a request to what answers it: access, the path, the method, and the routes that need no
// generation. Called on the I/O thread; what takes time goes to a worker.
#pragma once

#include "server/access.h"
#include "server/http/exchange.h"
#include "server/service.h"

namespace kapitsa::server {

class Handlers {
public:
  Handlers(std::shared_ptr<Service> service, AccessPolicy policy)
      : service_(std::move(service)), policy_(std::move(policy)) {}

  void handle(const std::shared_ptr<http::Exchange>& exchange) const;
  static http::Response refuse(int status, const std::string& message, const std::string& path);

private:
  std::shared_ptr<Service> service_;
  AccessPolicy policy_;
};

// The page for a browser at "/"; from web/chat.html.
std::string_view chat_page();

// "/v1/v1/models/" -> "/models": what clients with and without "/v1" in their base address send.
std::string route_of(std::string_view path);

}  // namespace kapitsa::server
