#include "runtime/infer/engine/Engine.h"

#include <algorithm>
#include <utility>

namespace tessera {

static int64_t tokensOf(const EngineRequest &request) {
  return int64_t(request.prompt.size()) + request.maxTokens;
}

Engine::Engine(PagedModel &model, const EngineOptions &options)
    : model(model), options(options), scheduler(model, options.scheduler),
      seen(scheduler.metrics()) {
  start([this] { loop(); });
}

Engine::~Engine() { drain(EngineClock::now()); }

//===--- any thread -------------------------------------------------------===//

Submission Engine::submit(std::vector<EngineRequest> requests) {
  using Outcome = Submission::Outcome;
  int64_t tokens = 0;
  for (const EngineRequest &request : requests) {
    Status status = checkRequest(request, model.shape());
    if (!status.ok())
      return {Outcome::invalid, status.message(), {}};
    tokens += tokensOf(request);
  }
  // Requests that exceed an empty queue can never run.
  if (int64_t(requests.size()) > options.maxRequests ||
      tokens > options.maxTokens)
    return {Outcome::invalid,
            fmt::format("{} requests of {} tokens in total exceed the queue's "
                        "limits of {} and {}",
                        requests.size(), tokens, options.maxRequests,
                        options.maxTokens),
            {}};
  auto now = EngineClock::now();
  std::lock_guard lock(mutex);
  if (death)
    return {Outcome::closed, "the engine has stopped: " + *death, {}};
  if (draining)
    return {Outcome::closed, "the server is shutting down", {}};
  auto unfinished = int64_t(inbox.size()) + heldRequests;
  if (unfinished + int64_t(requests.size()) > options.maxRequests ||
      queuedTokens + heldTokens + tokens > options.maxTokens)
    return {Outcome::full,
            fmt::format("{} requests of {} tokens are unfinished; try "
                        "again later",
                        unfinished, queuedTokens + heldTokens),
            {}};
  Submission result;
  for (EngineRequest &request : requests) {
    result.ids.push_back(nextId);
    inbox.push_back({nextId++, std::move(request), now});
  }
  queuedTokens += tokens;
  wake.notify_one();
  return result;
}

void Engine::cancel(uint64_t id) {
  std::lock_guard lock(mutex);
  if (ended)
    return;
  inbox.push_back({id, std::nullopt, {}});
  wake.notify_one();
}

bool Engine::run(std::function<void()> task) {
  std::lock_guard lock(mutex);
  if (ended || death || draining)
    return false;
  inbox.push_back({0, std::nullopt, {}, std::move(task)});
  wake.notify_one();
  return true;
}

EngineMetrics Engine::metrics() const {
  std::lock_guard lock(mutex);
  EngineMetrics copy = seen;
  // With those that were taken from the inbox since.
  copy.waiting +=
      int64_t(inbox.size()) + heldRequests - seen.running - seen.waiting;
  return copy;
}

int64_t Engine::unfinished() const {
  std::lock_guard lock(mutex);
  return heldRequests +
         std::ranges::count_if(inbox, [](const Command &command) {
           return command.request.has_value();
         });
}

std::optional<EngineClock::time_point> Engine::lastComputed() const {
  std::lock_guard lock(mutex);
  return seen.lastComputed;
}

//===--- the engine's thread ----------------------------------------------===//

bool Engine::nextCommands(std::vector<Command> &commands) {
  std::unique_lock lock(mutex);
  seen = scheduler.metrics();
  heldRequests = seen.running + seen.waiting;
  heldTokens = scheduler.unfinishedTokens();
  wake.wait(lock, [&] {
    return !inbox.empty() || !scheduler.idle() || draining || cancelling;
  });
  commands.clear();
  std::swap(commands, inbox);
  // From here on the scheduler counts them.
  heldTokens += std::exchange(queuedTokens, 0);
  heldRequests += int64_t(commands.size());
  if (cancelling) {
    lock.unlock();
    apply(commands);
    scheduler.finishAll(FinishReason::cancelled, "");
    return false;
  }
  return !(draining && commands.empty() && scheduler.idle());
}

void Engine::apply(std::vector<Command> &commands) {
  for (Command &command : commands)
    if (auto task = std::exchange(command.task, nullptr))
      task(); // and frees what it holds
    else if (command.request)
      scheduler.add(command.id, std::move(*command.request), command.arrived);
    else
      scheduler.cancel(command.id);
}

void Engine::die(const std::string &cause) {
  scheduler.finishAll(FinishReason::error, cause);
  std::vector<Command> late;
  {
    std::lock_guard lock(mutex);
    death = cause;
    std::swap(late, inbox);
  }
  apply(late);
  scheduler.finishAll(FinishReason::error, cause);
}

void Engine::loop() {
  std::vector<Command> commands;
  while (nextCommands(commands)) {
    apply(commands);
    if (Status status = scheduler.step(); !status.ok()) {
      die(status.message());
      break;
    }
  }
  std::lock_guard lock(mutex);
  seen = scheduler.metrics();
}

} // namespace tessera
