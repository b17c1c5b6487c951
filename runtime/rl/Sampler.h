// Where completions come from: an engine in this process (EngineSampler), or in
// other processes, here or on other machines (WorkerSampler).
#pragma once
#include "runtime/rl/Samples.h"
#include "runtime/support/Status.h"
#include "runtime/weights/ModelState.h"

#include <functional>
#include <span>

namespace tessera::rl {

/// Completions of one prompt, one for each seed. What is sampled follows from
/// the request and the weights alone.
struct SampleRequest {
  std::vector<int32_t> prompt;
  std::vector<uint64_t> seeds;
  float temperature = 1; ///< 0: the most probable tokens
  int64_t maxTokens = 0;
  std::vector<int32_t> stopTokens; ///< that end a completion
};

class Sampler {
public:
  /// Is given the completions in the order of their seeds, without rewards, or
  /// why there are none; from any thread, and soon to return.
  using Done = std::function<void(StatusOr<std::vector<Sample>>)>;

  virtual ~Sampler() = default;

  /// Most tokens of a prompt with its completion.
  virtual int64_t context() const = 0;
  /// The parameters that updateWeights() fills.
  virtual ModelState &weights() = 0;
  /// Calls `copy`, which writes to weights(), and samples with them from then
  /// on. Completions that are under way go on with them; each token has the
  /// version of the weights that sampled it.
  virtual Status updateWeights(uint32_t version,
                               const std::function<Status()> &copy) = 0;
  /// Seconds from the beginning of an update until all engines sampled with its
  /// weights: of the last update for which that is known, or 0.
  virtual double publishSeconds() const = 0;
  /// Samples with the weights of the last update, or later ones. Called by the
  /// thread that updates weights.
  virtual void submit(SampleRequest request, Done done) = 0;
  /// No `done` is called after it returns.
  virtual void stop() = 0;
};

} // namespace tessera::rl
