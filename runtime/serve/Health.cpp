#include "runtime/serve/Health.h"

#include <utility>

namespace tessera::serve {

static constexpr std::chrono::milliseconds kBetweenLooks{50};

bool Health::worksNow() const {
  auto last = engine.lastComputed();
  return last && EngineClock::now() - *last < times.recent;
}

void Health::probe() {
  if ((done && !*done) || engine.isBusy())
    return;
  auto ended = std::make_shared<std::atomic<bool>>(false);
  done = ended;
  if (!send(EngineClock::now() + times.patience, [ended] { *ended = true; }))
    done.reset(); // draining, stopped, or busy with requests
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
      each.tell("the model makes no progress");
    else
      waiting.push_back(std::move(each));
  if (!waiting.empty())
    server.after(kBetweenLooks, [this, &server] { look(server); });
}

} // namespace tessera::serve
