#include "runtime/serve/Serve.h"
#include "runtime/serve/Running.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace tessera::serve {
namespace {

class FirstToken final : public RequestSink {
public:
  bool token(const TokenEvent &) override { return has = true; }
  void finished(const EngineResult &result) override {
    if (has)
      promise.set_value({});
    else
      promise.set_value(result.message.empty()
                            ? "no token was generated in time"
                            : result.message);
  }
  std::promise<std::string> promise; ///< empty: success

private:
  bool has = false;
};

/// The engine is ready when it has generated a token.
Status tryOnce(Engine &engine) {
  auto sink = std::make_shared<FirstToken>();
  std::future<std::string> came = sink->promise.get_future();
  // No deadline: a large model's first token may take long.
  EngineRequest request = probeRequest(sink);
  Submission submission = engine.submit({std::move(request)});
  if (submission.outcome != Submission::Outcome::accepted)
    return Status::error("the engine does not start: {}", submission.message);
  std::string problem = came.get();
  if (!problem.empty())
    return Status::error("the engine does not start: {}", problem);
  return Status::success();
}

/// Lower priority than requests; signals are for the other threads.
std::jthread inBackground(const std::function<void(std::stop_token)> &work) {
  if (!work)
    return {};
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::jthread thread([work](std::stop_token stop) {
    constexpr int kLeast = 19;
    (void)::setpriority(PRIO_PROCESS, id_t(::gettid()), kLeast);
    work(std::move(stop));
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

} // namespace

Status ServeOptions::takeAddress() {
  auto taken = HttpAddress::take(host, port, http.connections);
  if (taken.ok())
    address = taken.take();
  return taken.status();
}

std::shared_ptr<TraceExporter> ServeOptions::openTraces() const {
  if (!traces)
    return nullptr;
  const char *named = std::getenv("OTEL_SERVICE_NAME");
  return std::make_shared<TraceExporter>(
      *traces, named && *named ? named : "tessera", service.version);
}

Status serve(PagedModel &model, const tokenizer::Tokenizer &tokenizer,
             const ChatRenderer &chat, ServeOptions options) {
  // Padding of the vocabulary has ids without a token.
  options.engine.scheduler.choices = tokenizer.vocabSize();
  // A chat may use its whole context.
  options.engine.maxTokens =
      std::max(options.engine.maxTokens, 64 * model.shape().context);
  options.service.requestTime = std::chrono::seconds(options.requestSeconds);
  options.service.traces = options.openTraces();
  Engine engine(model, options.engine);
  Service service(engine, tokenizer, chat, options.service);
  auto server = HttpServer::listen(*options.address, options.http, service);
  if (!server.ok())
    return server.status();
  service.attach(**server);
  TESSERA_RETURN_IF_ERROR(tryOnce(engine));
  const DecoderShape &shape = model.shape();
  options.phases.end("first token");
  const double mib = double(options.cacheBytes) / (1 << 20);
  sayReady(options, (*server)->port(),
           shape.states > 0
               ? fmt::format("context {}, {} recurrent states and KV cache in "
                             "{:.1f} MiB",
                             shape.context, shape.states, mib)
               : fmt::format("context {}, {} tokens of KV cache in {:.1f} MiB",
                             shape.context, shape.pages * shape.page, mib));
  const std::jthread background = inBackground(options.whenReady);
  Status status = runUntilEnd(**server, service, engine,
                              std::chrono::seconds(options.drainSeconds));
  service.forget();
  return status;
}

} // namespace tessera::serve
