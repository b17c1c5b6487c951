// Samples by an engine in this process.
#pragma once
#include "runtime/infer/engine/Engine.h"
#include "runtime/rl/Sampler.h"

#include <atomic>
#include <memory>

namespace tessera::rl {

class EngineSampler final : public Sampler {
public:
  /// `state` has the weights of the model that `model` runs. Both must outlive
  /// this.
  EngineSampler(PagedModel &model, ModelState &state);
  ~EngineSampler() override;

  int64_t context() const override { return model.shape().context; }
  ModelState &weights() override { return state; }
  Status updateWeights(uint32_t version,
                       const std::function<Status()> &copy) override;
  double publishSeconds() const override { return published; }
  void submit(SampleRequest request, Done done) override;
  void stop() override { engine.reset(); }

private:
  struct Open;
  class Sink;

  PagedModel &model;
  ModelState &state;
  std::atomic<uint32_t> version = 0; ///< written by the engine's thread
  double published = 0;              ///< of the last update
  std::unique_ptr<Engine> engine;
};

} // namespace tessera::rl
