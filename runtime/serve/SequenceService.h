// The part that servers of whole sequences share (EmbedService, RankService):
// an engine's queue, tokenizing, logs and traces.
#pragma once
#include "runtime/infer/engine/EmbedEngine.h"
#include "runtime/serve/CommonService.h"
#include "runtime/serve/Serve.h"

namespace tessera::serve {

class SequenceService : public CommonService {
public:
  SequenceService(ModelKind kind, EmbedEngine &engine,
                  const tokenizer::Tokenizer &tokenizer,
                  ServiceOptions options);

protected:
  using Clock = EngineClock;
  /// The body of a 200, or an error.
  using Answer = std::variant<std::string, ApiError>;

  /// A request in progress.
  struct Call {
    Call(const HttpRequest &http, const Reply &reply, const char *operation);

    Reply reply;
    std::optional<TraceContext> trace; ///< of the client
    const char *operation;             ///< of logs and traces
    std::string model;                 ///< as asked
    std::size_t inputs = 0;
    std::string_view field; ///< that errors of the engine's checks name
    std::function<Answer(EmbedResult)> answer; ///< of a success
    Clock::time_point arrived = Clock::now();
    bool isGone = false; ///< the client has disconnected
  };
  /// Queues the work, and sends the answer when it is done.
  void submit(EmbedRequest work, const std::shared_ptr<Call> &call);
  /// Handles /tokenize and /detokenize.
  void tokenize(const HttpRequest &http, Endpoint endpoint, const Reply &reply);
  static ApiError invalid(std::string_view param, std::string message) {
    return {400, std::move(message), std::string(param), "invalid_value"};
  }

  EmbedEngine &engine;
  const tokenizer::Tokenizer &tokenizer;

private:
  std::string engineMetrics() const override;
  int64_t context() const override { return engine.shape().context; }
  void finish(const Call &call, EmbedResult result);
  void log(int status, const Call &call, int64_t tokens,
           const std::string &error = {}) const;

  tokenizer::Encoder encoder; ///< for /tokenize
};

using MakeService = std::function<std::unique_ptr<SequenceService>(
    EmbedEngine &engine, const ServiceOptions &options)>;

/// Serves until a signal; `made` is what the model computes, for the line that
/// says that it is ready, and `first` the phase of its first result.
Status serveSequences(EmbeddingModel &model, ServeOptions options,
                      const MakeService &make, const std::string &made,
                      const char *first);

} // namespace tessera::serve
