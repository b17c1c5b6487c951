#include "runtime/rl/EngineSampler.h"

#include <chrono>
#include <future>
#include <limits>
#include <mutex>

namespace tessera::rl {
namespace {

/// Sequences that were begun under the same weights share prefixes; others do
/// not. No adapter is applied.
struct WeightsVersion final : AdapterSlot {
  explicit WeightsVersion(uint64_t version) { number = version + 1; }
};

/// All tokens of the vocabulary may be sampled: the loss is over all.
EngineOptions engineOptions() {
  EngineOptions options;
  options.maxRequests = options.maxTokens =
      std::numeric_limits<int64_t>::max() / 2;
  return options;
}

} // namespace

/// A request whose completions are not all there.
struct EngineSampler::Open {
  std::vector<Sample> samples;
  std::size_t unfinished = 0;
  Done done; ///< empty once it was called
};

/// Collects the tokens of one completion, on the engine's thread.
class EngineSampler::Sink final : public RequestSink {
public:
  Sink(const EngineSampler &sampler, std::shared_ptr<Open> open,
       std::size_t index)
      : sampler(sampler), open(std::move(open)),
        sample(this->open->samples[index]) {}

  bool token(const TokenEvent &event) override {
    sample.tokens.push_back(event.token);
    sample.logProbs.push_back(event.logprobs.chosen);
    sample.versions.push_back(sampler.version);
    return true;
  }
  void finished(const EngineResult &result) override {
    if (result.reason == FinishReason::cancelled)
      return; // of a run that ends
    if (result.reason != FinishReason::stop &&
        result.reason != FinishReason::length) {
      if (auto done = std::exchange(open->done, nullptr))
        done(Status::error("sampling: {}", result.message));
      return;
    }
    sample.isCut = result.reason == FinishReason::length;
    if (--open->unfinished == 0 && open->done)
      std::exchange(open->done, nullptr)(std::move(open->samples));
  }

private:
  const EngineSampler &sampler;
  std::shared_ptr<Open> open;
  Sample &sample;
};

EngineSampler::EngineSampler(PagedModel &model, ModelState &state)
    : model(model), state(state),
      engine(std::make_unique<Engine>(model, engineOptions())) {}

EngineSampler::~EngineSampler() { stop(); }

Status EngineSampler::updateWeights(uint32_t step,
                                    const std::function<Status()> &copy) {
  const auto begin = std::chrono::steady_clock::now();
  std::promise<Status> copied;
  const bool accepted = engine->run([&] {
    Status status = copy();
    version = step;
    copied.set_value(std::move(status));
  });
  if (!accepted)
    return Status::error("sampling: {}",
                         engine->deathCause().value_or("the engine stopped"));
  Status status = copied.get_future().get();
  published =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  return status;
}

void EngineSampler::submit(SampleRequest request, Done done) {
  const std::size_t size = request.seeds.size();
  auto open = std::make_shared<Open>();
  open->samples.resize(size);
  open->unfinished = size;
  open->done = std::move(done);
  const auto weights = std::make_shared<WeightsVersion>(version);
  std::vector<EngineRequest> requests(size);
  for (std::size_t i = 0; i < size; ++i) {
    EngineRequest &each = requests[i];
    each.prompt = request.prompt;
    each.sampling.temperature = request.temperature;
    each.sampling.seed = request.seeds[i];
    each.maxTokens = request.maxTokens;
    each.stopTokens = request.stopTokens;
    each.logprobs = 0;
    each.adapter = weights;
    each.sink = std::make_shared<Sink>(*this, open, i);
  }
  const Submission submission = engine->submit(std::move(requests));
  // The engine has none of its sinks then.
  if (submission.outcome != Submission::Outcome::accepted)
    open->done(Status::error("{}", submission.message));
}

} // namespace tessera::rl
