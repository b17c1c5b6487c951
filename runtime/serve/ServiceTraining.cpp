// Requests about adapters that are trained while serving.
#include "runtime/serve/Service.h"

#include <chrono>
#include <future>
#include <thread>

namespace tessera::serve {

void Service::train(const RouteMatch &match, const HttpRequest &http,
                    const Reply &reply) {
  if (!options.training)
    return sendError(reply, {403,
                             "adapters are trained only by a server that was "
                             "started with --train",
                             "", "not_supported"});
  TrainingRequest request{match.route->id, percentDecoded(match.rest),
                          http.body, std::make_shared<std::atomic<bool>>()};
  reply->onGone = [isGone = request.isGone] { *isGone = true; };
  const bool isQueued = options.training->submit(
      std::move(request), [this, reply](TrainingResult result) {
        server->post([this, reply, result = std::move(result)]() mutable {
          if (const auto *error = std::get_if<ApiError>(&result))
            return sendError(reply, *error);
          sendJson(reply, std::move(std::get<std::string>(result)));
        });
      });
  if (!isQueued && isStopping)
    sendError(reply, shuttingDown());
  else if (!isQueued)
    sendError(reply, {429, "too many requests about training are waiting", "",
                      "queue_full"});
}

void Service::beforeEnd() {
  isStopping = true;
  if (options.training)
    options.training->stop();
}

/// Calls `task` on the server's thread and waits for it.
static void callOn(HttpServer &server, const std::function<void()> &task) {
  auto called = std::make_shared<std::promise<void>>();
  server.post([&task, called] {
    task();
    called->set_value();
  });
  called->get_future().wait();
}

Status Service::publish(const std::string &name, const AdapterFile &adapter) {
  auto values = options.adapters->valuesOf(adapter);
  if (!values.ok())
    return values.status();
  // Older factors stay until their requests have ended.
  constexpr std::chrono::milliseconds kPause{2};
  std::shared_ptr<const AdapterSlot> slot;
  while (!(slot = options.adapters->takeSlot())) {
    if (isStopping)
      return Status::error("the server is shutting down");
    std::this_thread::sleep_for(kPause);
  }
  auto written = std::make_shared<std::promise<Status>>();
  const bool isRunning = engine.run([this, &values, &slot, written] {
    written->set_value(options.adapters->write(*values, slot->slot));
  });
  if (!isRunning)
    return Status::error("the server is shutting down");
  TESSERA_RETURN_IF_ERROR(written->get_future().get());
  callOn(*server,
         [&] { options.adapters->replace({name, "", std::move(slot)}); });
  return Status::success();
}

bool Service::isTaken(const std::string &name) {
  bool isServedNow = false;
  callOn(*server, [&] { isServedNow = isServed(name); });
  return isServedNow;
}

void Service::withdraw(const std::string &name) {
  callOn(*server, [&] { options.adapters->remove(name); });
}

} // namespace tessera::serve
