// A sharded model as one TrainModel: state of whole tensors, batches of all
// sequences. Each rank has an instance, and all make the same calls in the same
// order; tensors that a rank has no shard of go through rank 0. With a pipeline
// a rank has the tensors of its stages.
#pragma once
#include "runtime/artifact/Shares.h"
#include "runtime/comm/Channel.h"
#include "runtime/train/SessionModel.h"

#include <map>

namespace tessera {

class MeshModel : public TrainModel {
public:
  /// `share` is this rank's model, opened on `world`, which must outlive this.
  static StatusOr<std::unique_ptr<MeshModel>>
  create(std::unique_ptr<SessionModel> share, comm::World &world);

  /// A, B and T of all ranks together; memory of this rank.
  const ModelFacts &facts() const override { return info; }
  const std::vector<StateTensor> &state() const override { return tensors; }
  /// Fills all of `out` only on rank 0; on other ranks, only their shards.
  Status readState(const StateTensor &tensor, uint64_t offset,
                   std::span<std::byte> out) override;
  /// Every rank stores its shard.
  Status writeState(const StateTensor &tensor, uint64_t offset,
                    std::span<const std::byte> bytes) override;
  Status
  forEachOwn(const StateTensor &tensor, uint64_t offset, uint64_t size,
             const std::function<Status(uint64_t, uint64_t)> &use) override;
  Status initialize(int64_t seed) override { return share->initialize(seed); }
  StatusOr<StepMetrics> trainStep(const TokenBatch &batch,
                                  int64_t seed) override;
  std::vector<uint64_t> trainRows() const override { return ownRows(step); }
  std::vector<uint64_t> evalRows() const override { return ownRows(eval); }
  bool canEvaluate() const override { return share->canEvaluate(); }
  StatusOr<EvalSum> evalStep(const TokenBatch &batch) override;
  /// Of all tokens, on every rank.
  StatusOr<std::span<const float>> values(const TokenBatch &batch) override;
  /// Scores are for one process: none here.
  int64_t contextLength() const override { return 0; }
  StatusOr<std::span<const float>> logits(std::span<const int32_t>) override;
  uint64_t bytesDuringPiece(uint64_t piece) const override { return piece; }
  StatusOr<uint64_t> residentPlannedBytes() const override {
    return share->residentPlannedBytes();
  }

  StatusOr<std::vector<uint64_t>>
  fromEveryRank(std::span<const uint64_t> own) override;

  /// Whether the condition holds on any rank; all ranks ask at the same time.
  StatusOr<bool> anywhere(bool condition);
  SessionModel &get() { return *share; }
  /// The shard alone, such as after its weights were read; this is of no use
  /// afterwards.
  std::unique_ptr<SessionModel> takeShard() { return std::move(share); }

private:
  /// Tokens of a program, sharded as its input.
  struct Batch {
    const artifact::Tensor *tokens = nullptr, *targets = nullptr;
    /// Null where the program has no such input.
    const artifact::Tensor *starts = nullptr, *numbers = nullptr,
                           *reference = nullptr, *behavior = nullptr,
                           *advantages = nullptr, *rewards = nullptr,
                           *values = nullptr, *labels = nullptr,
                           *teacherTokens = nullptr, *teacherLogProbs = nullptr;
    TokenBuffers own;
  };
  /// A tensor of the state, as the artifact has it.
  struct Shared {
    const artifact::Tensor *tensor; ///< of any one share
    bool isOwn;                     ///< whether this rank has a shard
    /// The first ranks with each part, from which it is gathered.
    std::vector<uint32_t> holders;
  };
  MeshModel(std::unique_ptr<SessionModel> share, comm::World &world,
            comm::Channel &everybody);
  Status readFacts();
  Status findBatch(std::string_view program, Batch &batch);
  std::vector<uint64_t> ownRows(const Batch &batch) const;
  Status cut(Batch &batch, const TokenBatch &whole) const;
  Status collect(const Shared &tensor, uint64_t offset,
                 std::span<std::byte> out);
  Status readTensors();
  const Shared &sharedTensor(const StateTensor &tensor) const {
    return shared[numbers.find(tensor.name)->second];
  }

  std::unique_ptr<SessionModel> share;
  comm::World &world;
  comm::Channel &everybody;
  artifact::Mesh mesh;
  artifact::Coordinates at;
  ModelFacts info;
  std::vector<StateTensor> tensors;                ///< whole, of all shares
  std::vector<Shared> shared;                      ///< of each of them
  std::map<std::string_view, std::size_t> numbers; ///< their index by name
  Batch step, eval;
  std::vector<std::byte> packed; ///< of one rank, in transit
};

} // namespace tessera
