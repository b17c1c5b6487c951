// step-check PROGRAM STEPS: some training steps on a batch that is made here,
// on one rank or on those of mpirun, with a line of the metrics of each. For
// tasks whose batches no folder of data has, and for comparing meshes.
#include "runtime/artifact/TrainingPrograms.h"
#include "runtime/data/PackedDataset.h"
#include "runtime/train/MeshModel.h"
#include "runtime/train/RunRecipe.h"

#include <cstdlib>
#include <memory>
#include <random>

#include <fmt/ranges.h>

using namespace tessera;

namespace {

/// Documents of 5 to 20 tokens, of which those after the second third of a
/// document, or all, are learned; at the end of a row there is padding.
void fillRow(std::mt19937 &random, const ModelFacts &facts,
             const TokenBatchOut &row) {
  std::uniform_int_distribution<int32_t> token(
      0, static_cast<int32_t>(facts.vocabSize) - 1);
  std::uniform_int_distribution<std::size_t> size(5, 20);
  std::normal_distribution<float> normal;
  const float usual = -std::log(static_cast<float>(facts.vocabSize));
  const std::size_t length = row.tokens.size();
  for (int32_t &each : row.tokens)
    each = token(random);
  std::ranges::fill(row.targets, ignoredTarget);
  std::ranges::fill(row.documentNumbers, ignoredTarget);
  std::size_t begin = 0;
  for (int32_t number = 0; number < 4; ++number) {
    const std::size_t end = begin + size(random);
    if (end > length)
      break;
    const float advantage = normal(random);
    for (std::size_t t = begin; t < end; ++t) {
      if (!row.documentStarts.empty())
        row.documentStarts[t] = static_cast<int32_t>(begin);
      if (!row.documentNumbers.empty())
        row.documentNumbers[t] = number;
      if (t + 1 == end || 3 * (t - begin) < end - begin)
        continue;
      row.targets[t] = row.tokens[t + 1];
      if (!row.reference.empty())
        row.reference[t] = usual + 0.1f * normal(random);
      if (row.behavior.empty())
        continue;
      row.behavior[t] = usual + 0.2f * normal(random);
      if (!row.advantages.empty())
        row.advantages[t] = advantage;
      if (row.rewards.empty())
        continue;
      row.rewards[t] = t + 2 == end ? advantage : 0;
      row.values[t] = 0.2f * normal(random);
    }
    begin = end;
  }
  for (std::size_t t = begin; t < row.documentStarts.size(); ++t)
    row.documentStarts[t] = static_cast<int32_t>(begin);
}

TokenBuffers makeBatch(const ModelFacts &facts) {
  const auto rows = static_cast<std::size_t>(facts.microbatches * facts.rows),
             length = static_cast<std::size_t>(facts.sequence);
  TokenBuffers batch(rows * length, facts.documents);
  std::mt19937 random(11);
  for (std::size_t row = 0; row < rows; ++row)
    fillRow(random, facts, batch.out().part(row * length, length));
  return batch;
}

Status writeHyper(TrainModel &model) {
  StatusOr<RunRecipe> recipe = parseRunRecipe(model.facts().recipe);
  if (!recipe.ok())
    return recipe.status();
  const std::array<float, kHyperSlots> hyper = recipe->hyper();
  const StateTensor *tensor = model.find(kHyperTensor);
  if (!tensor)
    return Status::error("no state tensor '{}'", kHyperTensor);
  return model.writeState(*tensor, 0, std::as_bytes(std::span(hyper)));
}

Status trainSteps(TrainModel &model, int steps, bool prints) {
  TESSERA_RETURN_IF_ERROR(model.initialize(7));
  TESSERA_RETURN_IF_ERROR(writeHyper(model));
  const TokenBuffers batch = makeBatch(model.facts());
  for (int step = 1; step <= steps; ++step) {
    StatusOr<StepMetrics> metrics = model.trainStep(batch.view(), 7);
    if (!metrics.ok())
      return metrics.status();
    if (prints)
      fmt::print("{} {} {} {}\n", metrics->loss, metrics->gradNorm,
                 metrics->tokens, fmt::join(metrics->policy, " "));
  }
  return Status::success();
}

StatusOr<std::unique_ptr<SessionModel>>
openModel(const std::string &path, const hal::MeshContext &mesh) {
  StatusOr<ArtifactReader> reader = ArtifactReader::open(path);
  if (!reader.ok())
    return reader.status();
  hal::SessionOptions options;
  options.mesh = mesh;
  options.device = "cpu";
  options.deviceOptions.threads = 1;
  options.programs = {"init", "train_step"};
  return SessionModel::open(*reader, options);
}

Status run(const std::string &path, int steps) {
  StatusOr<comm::Launch> launch = comm::readLaunch();
  if (!launch.ok())
    return launch.status();
  if (launch->size == 1) {
    auto model = openModel(path, {});
    return model.ok() ? trainSteps(**model, steps, true) : model.status();
  }
  auto world = comm::World::join(*launch, {});
  if (!world.ok())
    return world.status();
  hal::MeshContext mesh;
  mesh.rank = static_cast<std::uint32_t>(launch->rank);
  mesh.world = world->get();
  mesh.firstChannel = 1; // MeshModel has the channel of all ranks
  auto share = openModel(path, mesh);
  if (!share.ok())
    return share.status();
  auto model = MeshModel::create(share.take(), **world);
  if (!model.ok())
    return model.status();
  TESSERA_RETURN_IF_ERROR(trainSteps(**model, steps, launch->rank == 0));
  return (*world)->leave();
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: step-check PROGRAM STEPS\n");
    return 2;
  }
  const Status status = run(argv[1], std::atoi(argv[2]));
  if (!status.ok())
    fmt::print(stderr, "error: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
