#include "runtime/serve/Health.h"

#include <atomic>
#include <utility>

namespace tessera::serve {

static constexpr std::chrono::milliseconds kBetweenLooks{50};

EngineRequest probeRequest(std::shared_ptr<RequestSink> sink) {
  EngineRequest request;
  request.prompt = {0};
  request.maxTokens = 1;
  request.sampling.temperature = 0;
  request.sink = std::move(sink);
  return request;
}

namespace {

/// Only waits for its end; that a token came is seen in the engine's metrics.
class Probe final : public RequestSink {
public:
  bool token(const TokenEvent &) override { return true; }
  void finished(const EngineResult &) override { done = true; }
  std::atomic<bool> done = false;
};

} // namespace

bool Health::worksNow() const {
  auto last = engine.lastComputed();
  return last && EngineClock::now() - *last < times.recent;
}

void Health::probe() {
  if (probing && !static_cast<const Probe &>(*probing).done)
    return;
  probing.reset();
  if (engine.isBusy())
    return;
  probing = std::make_shared<Probe>();
  EngineRequest request = probeRequest(probing);
  request.deadline = EngineClock::now() + times.patience;
  if (engine.submit({std::move(request)}).outcome !=
      Submission::Outcome::accepted)
    probing.reset(); // drains or died, or requests came meanwhile
}

void Health::ask(HttpServer &server,
                 std::function<void(const std::string &)> tell) {
  if (auto cause = engine.deathCause())
    return tell("the engine has stopped: " + *cause);
  if (worksNow())
    return tell({});
  probe();
  waiting.push_back({EngineClock::now(), std::move(tell)});
  if (waiting.size() == 1)
    look(server);
}

void Health::end() {
  for (Waiting &each : std::exchange(waiting, {}))
    each.tell(std::string(kEnding));
}

void Health::look(HttpServer &server) {
  auto cause = engine.deathCause();
  bool works = !cause && worksNow();
  auto late = EngineClock::now() - times.patience;
  for (Waiting &each : std::exchange(waiting, {}))
    if (works)
      each.tell({});
    else if (cause)
      each.tell("the engine has stopped: " + *cause);
    else if (each.since < late)
      each.tell("the model computes nothing");
    else
      waiting.push_back(std::move(each));
  if (!waiting.empty())
    server.after(kBetweenLooks, [this, &server] { look(server); });
}

} // namespace tessera::serve
