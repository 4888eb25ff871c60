// One request that the engine answers: submits it, turns the engine's events into what its dialect
// says, and cancels when the client goes away. After start() everything happens on the I/O thread.
#pragma once

#include "server/api/events.h"
#include "server/http/exchange.h"
#include "server/service.h"

#include <memory>
#include <vector>

namespace kapitsa::server {

// Answers the exchange. Called on a worker: it renders and tokenises.
void generate(std::shared_ptr<http::Exchange> exchange, std::shared_ptr<Service> service,
              api::Call call, std::unique_ptr<api::Dialect> dialect, RequestRecord record,
              Clock::time_point received);

}  // namespace kapitsa::server
