#include "runtime/train/MeshModel.h"
#include "runtime/artifact/ElementTypes.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace tessera {
namespace {

using artifact::Run;
using artifact::ShareRuns;

/// Sessions number channels by the axes of their groups, from 1 on.
constexpr int kEverybodyChannel = 0;

/// The part of a run within [begin, begin + count) of the whole tensor.
Run clip(Run run, uint64_t begin, uint64_t count) {
  uint64_t first = std::max(run.whole, begin),
           last = std::min(run.whole + run.count, begin + count);
  if (last <= first)
    return {};
  return {first, run.part + (first - run.whole), last - first};
}

/// Calls `use` for each part of the shard at `at` in elements [begin, begin +
/// count) of the whole, in the shard's order.
template <typename Use>
Status forEachPart(const artifact::Tensor &tensor, const artifact::Mesh &mesh,
                   const artifact::Coordinates &at, uint64_t begin,
                   uint64_t count, Use use) {
  ShareRuns runs(tensor, mesh, at);
  while (const Run *run = runs.next())
    if (Run part = clip(*run, begin, count); part.count > 0)
      TESSERA_RETURN_IF_ERROR(use(part));
  return Status::success();
}

/// Elements of the shard in that range.
uint64_t countParts(const artifact::Tensor &tensor, const artifact::Mesh &mesh,
                    const artifact::Coordinates &at, uint64_t begin,
                    uint64_t count) {
  uint64_t sum = 0;
  ShareRuns runs(tensor, mesh, at);
  while (const Run *run = runs.next())
    sum += clip(*run, begin, count).count;
  return sum;
}

StatusOr<StateTensor> wholeTensor(const artifact::Tensor &tensor) {
  StatusOr<StateTensor> whole = stateTensorOf(tensor);
  if (!whole.ok())
    return whole;
  whole->shape = artifact::globalShape(tensor);
  whole->size = artifact::elementBytes(tensor.type());
  for (uint64_t size : whole->shape)
    whole->size *= size;
  return whole;
}

/// Of the whole tensor.
uint64_t elementsOf(const artifact::Tensor &tensor) {
  uint64_t elements = 1;
  for (uint64_t size : artifact::globalShape(tensor))
    elements *= size;
  return elements;
}

} // namespace

MeshModel::MeshModel(std::unique_ptr<SessionModel> own, comm::World &world,
                     comm::Channel &everybody)
    : share(std::move(own)), world(world), everybody(everybody),
      mesh(share->get().artifact()),
      at(mesh.coordinatesOf(static_cast<uint32_t>(world.rank()))) {}

StatusOr<std::unique_ptr<MeshModel>>
MeshModel::create(std::unique_ptr<SessionModel> share, comm::World &world) {
  auto everybody =
      world.open(kEverybodyChannel, comm::Group::world(world.size()));
  if (!everybody.ok())
    return everybody.status();
  std::unique_ptr<MeshModel> model(
      new MeshModel(std::move(share), world, **everybody));
  TESSERA_RETURN_IF_ERROR(model->readFacts());
  return model;
}

Status MeshModel::readFacts() {
  info = share->facts();
  TESSERA_RETURN_IF_ERROR(readTensors());
  TESSERA_RETURN_IF_ERROR(findBatch("train_step", step));
  TESSERA_RETURN_IF_ERROR(findBatch("eval_step", eval));
  if (step.tokens) {
    const std::vector<uint64_t> shape = artifact::globalShape(*step.tokens);
    info.rows = static_cast<int64_t>(shape[1]);
    info.sequence = static_cast<int64_t>(shape[2]);
  }
  if (eval.tokens) {
    const std::vector<uint64_t> shape = artifact::globalShape(*eval.tokens);
    info.evalRows = static_cast<int64_t>(shape[shape.size() - 2]);
    info.sequence = static_cast<int64_t>(shape.back());
  }
  return Status::success();
}

// The shares' tensors in the order of the shares, each once.
Status MeshModel::readTensors() {
  const artifact::Artifact &root = share->get().artifact();
  std::vector<std::vector<bool>> isHolder;
  for (const artifact::Share *each : *root.shares())
    for (const artifact::Tensor *tensor : *each->state()) {
      const auto [number, isNew] =
          numbers.try_emplace(tensor->name()->string_view(), shared.size());
      if (isNew) {
        StatusOr<StateTensor> whole = wholeTensor(*tensor);
        if (!whole.ok())
          return whole.status();
        tensors.push_back(whole.take());
        shared.push_back({tensor, false, {}});
        isHolder.emplace_back(mesh.ranks());
      }
      for (const uint32_t rank : *each->ranks()) {
        isHolder[number->second][rank] = true;
        shared[number->second].isOwn |=
            rank == static_cast<uint32_t>(world.rank());
      }
    }
  for (std::size_t i = 0; i < shared.size(); ++i)
    shared[i].holders =
        artifact::firstHolders(*shared[i].tensor, mesh, isHolder[i]);
  return Status::success();
}

Status MeshModel::findBatch(std::string_view name, Batch &batch) {
  const artifact::Program *program =
      artifact::findProgram(share->get().code(), name);
  if (!program)
    return Status::success();
  for (const artifact::Tensor *input : *program->inputs()) {
    if (input->name()->string_view() == "tokens")
      batch.tokens = input;
    if (input->name()->string_view() == "targets")
      batch.targets = input;
    if (input->name()->string_view() == kStartsInput)
      batch.starts = input;
    if (input->name()->string_view() == kNumbersInput)
      batch.numbers = input;
    if (input->name()->string_view() == kReferenceInput)
      batch.reference = input;
    if (input->name()->string_view() == kBehaviorInput)
      batch.behavior = input;
    if (input->name()->string_view() == kAdvantagesInput)
      batch.advantages = input;
    if (input->name()->string_view() == kRewardsInput)
      batch.rewards = input;
    if (input->name()->string_view() == kValuesInput)
      batch.values = input;
    if (input->name()->string_view() == kLabelsInput)
      batch.labels = input;
    if (input->name()->string_view() == kTeacherTokensInput)
      batch.teacherTokens = input;
    if (input->name()->string_view() == kTeacherLogProbsInput)
      batch.teacherLogProbs = input;
  }
  if (!batch.tokens || !batch.targets)
    return Status::error("program '{}' has no tokens and targets; run: {}",
                         name, info.rebuildCommand);
  batch.own.tokens.resize(batch.tokens->bytes() / sizeof(int32_t));
  batch.own.targets.resize(batch.targets->bytes() / sizeof(int32_t));
  if (batch.starts)
    batch.own.documentStarts.resize(batch.starts->bytes() / sizeof(int32_t));
  if (batch.numbers)
    batch.own.documentNumbers.resize(batch.numbers->bytes() / sizeof(int32_t));
  if (batch.labels)
    batch.own.documentLabels.resize(batch.labels->bytes() / sizeof(int32_t));
  if (batch.teacherTokens)
    batch.own.teacherTokens.resize(batch.teacherTokens->bytes() /
                                   sizeof(int32_t));
  for (auto [input, own] :
       {std::pair(batch.reference, &batch.own.reference),
        std::pair(batch.behavior, &batch.own.behavior),
        std::pair(batch.advantages, &batch.own.advantages),
        std::pair(batch.rewards, &batch.own.rewards),
        std::pair(batch.values, &batch.own.values),
        std::pair(batch.teacherLogProbs, &batch.own.teacherLogProbs)})
    if (input)
      own->resize(input->bytes() / sizeof(float));
  return Status::success();
}

// The rows of which this rank has a part of an input.
std::vector<uint64_t> MeshModel::ownRows(const Batch &batch) const {
  std::vector<uint64_t> rows;
  if (!batch.tokens)
    return rows;
  const uint64_t tokens = elementsOf(*batch.tokens);
  std::set<uint64_t> found;
  for (const artifact::Tensor *input :
       {batch.tokens, batch.targets, batch.starts, batch.numbers,
        batch.reference, batch.behavior, batch.advantages, batch.rewards,
        batch.values, batch.labels, batch.teacherTokens,
        batch.teacherLogProbs}) {
    if (!input)
      continue;
    const uint64_t length =
        static_cast<uint64_t>(info.sequence) * (elementsOf(*input) / tokens);
    ShareRuns runs(*input, mesh, at);
    while (const Run *run = runs.next())
      for (uint64_t row = run->whole / length;
           row * length < run->whole + run->count; ++row)
        found.insert(row);
  }
  rows.assign(found.begin(), found.end());
  return rows;
}

Status MeshModel::cut(Batch &batch, const TokenBatch &whole) const {
  const uint64_t elements = elementsOf(*batch.tokens);
  const auto &[tokens, targets, starts, numbers, reference, behavior,
               advantages, labels, teacherTokens, teacherLogProbs, rewards,
               values] = whole;
  if (tokens.size() != elements || targets.size() != elements)
    return Status::error("a batch of {} tokens and {} targets: all ranks "
                         "together take {} of each",
                         tokens.size(), targets.size(), elements);
  const auto copy = [&](const artifact::Tensor &input, auto from, auto &to) {
    artifact::copyToShare(input, mesh, at, std::as_bytes(from),
                          std::as_writable_bytes(std::span(to)));
  };
  copy(*batch.tokens, tokens, batch.own.tokens);
  copy(*batch.targets, targets, batch.own.targets);
  if (batch.starts)
    copy(*batch.starts, starts, batch.own.documentStarts);
  if (batch.numbers)
    copy(*batch.numbers, numbers, batch.own.documentNumbers);
  if (batch.reference)
    copy(*batch.reference, reference, batch.own.reference);
  if (batch.behavior)
    copy(*batch.behavior, behavior, batch.own.behavior);
  if (batch.advantages)
    copy(*batch.advantages, advantages, batch.own.advantages);
  if (batch.rewards)
    copy(*batch.rewards, rewards, batch.own.rewards);
  if (batch.values)
    copy(*batch.values, values, batch.own.values);
  if (batch.labels)
    copy(*batch.labels, labels, batch.own.documentLabels);
  if (batch.teacherTokens)
    copy(*batch.teacherTokens, teacherTokens, batch.own.teacherTokens);
  if (batch.teacherLogProbs)
    copy(*batch.teacherLogProbs, teacherLogProbs, batch.own.teacherLogProbs);
  return Status::success();
}

StatusOr<StepMetrics> MeshModel::trainStep(const TokenBatch &batch,
                                           int64_t seed) {
  TESSERA_RETURN_IF_ERROR(cut(step, batch));
  return share->trainStep(step.own.view(), seed);
}

StatusOr<EvalSum> MeshModel::evalStep(const TokenBatch &batch) {
  TESSERA_RETURN_IF_ERROR(cut(eval, batch));
  return share->evalStep(eval.own.view());
}

StatusOr<std::span<const float>> MeshModel::values(const TokenBatch &batch) {
  TESSERA_RETURN_IF_ERROR(cut(eval, batch));
  auto found = share->values(eval.own.view());
  if (found.ok() && found->size() != batch.tokens.size())
    return Status::error("eval_step has values of {} tokens of {}; it was "
                         "compiled by another version, run: {}",
                         found->size(), batch.tokens.size(),
                         info.rebuildCommand);
  return found;
}

StatusOr<std::span<const float>> MeshModel::logits(std::span<const int32_t>) {
  return Status::error("a program of {} ranks gives no scores", world.size());
}

// Rank 0 receives from the others in order, except from ranks with the same
// elements as an earlier one.
Status MeshModel::collect(const Shared &state, uint64_t offset,
                          std::span<std::byte> out) {
  const artifact::Tensor &tensor = *state.tensor;
  const std::string_view name = tensor.name()->string_view();
  const uint64_t width = artifact::elementBytes(tensor.type()),
                 begin = offset / width, count = out.size() / width;
  for (const uint32_t holder : state.holders) {
    const int rank = static_cast<int>(holder);
    artifact::Coordinates there = mesh.coordinatesOf(holder);
    uint64_t bytes = countParts(tensor, mesh, there, begin, count) * width;
    bool isMine = rank == world.rank();
    if (bytes == 0 || (!isMine && world.rank() != 0))
      continue;
    packed.resize(std::max<std::size_t>(packed.size(), bytes));
    uint64_t done = 0;
    if (isMine)
      TESSERA_RETURN_IF_ERROR(
          forEachPart(tensor, mesh, there, begin, count, [&](const Run &part) {
            auto piece = std::span(packed).subspan(done, part.count * width);
            done += piece.size();
            return share->get().readState(name, piece, part.part * width);
          }));
    if (rank != 0)
      TESSERA_RETURN_IF_ERROR(everybody.run(
          isMine ? comm::Collective::send(artifact::ElementType::u8,
                                          packed.data(), bytes, 0)
                 : comm::Collective::receive(artifact::ElementType::u8,
                                             packed.data(), bytes, rank)));
    if (world.rank() != 0)
      continue;
    done = 0;
    TESSERA_RETURN_IF_ERROR(
        forEachPart(tensor, mesh, there, begin, count, [&](const Run &part) {
          std::memcpy(out.data() + (part.whole - begin) * width,
                      packed.data() + done, part.count * width);
          done += part.count * width;
          return Status::success();
        }));
  }
  return Status::success();
}

Status MeshModel::readState(const StateTensor &tensor, uint64_t offset,
                            std::span<std::byte> out) {
  const Shared &state = sharedTensor(tensor);
  if (!state.tensor->cuts() && state.isOwn &&
      (world.rank() != 0 || state.holders.front() == 0))
    TESSERA_RETURN_IF_ERROR(share->get().readState(tensor.name, out, offset));
  if (!state.tensor->cuts() && state.holders.front() == 0)
    return Status::success();
  return collect(state, offset, out);
}

Status MeshModel::writeState(const StateTensor &tensor, uint64_t offset,
                             std::span<const std::byte> bytes) {
  const Shared &state = sharedTensor(tensor);
  if (!state.isOwn)
    return Status::success();
  const artifact::Tensor &part = *state.tensor;
  if (!part.cuts())
    return share->get().writeState(tensor.name, bytes, offset);
  const uint64_t width = artifact::elementBytes(part.type()),
                 begin = offset / width;
  return forEachPart(
      part, mesh, at, begin, bytes.size() / width, [&](const Run &run) {
        return share->get().writeState(
            tensor.name,
            bytes.subspan((run.whole - begin) * width, run.count * width),
            run.part * width);
      });
}

Status
MeshModel::forEachOwn(const StateTensor &tensor, uint64_t offset, uint64_t size,
                      const std::function<Status(uint64_t, uint64_t)> &use) {
  const Shared &state = sharedTensor(tensor);
  if (!state.isOwn)
    return Status::success();
  if (!state.tensor->cuts())
    return use(offset, size);
  const uint64_t width = artifact::elementBytes(state.tensor->type());
  return forEachPart(*state.tensor, mesh, at, offset / width, size / width,
                     [&](const Run &run) {
                       return use(run.whole * width, run.count * width);
                     });
}

StatusOr<std::vector<uint64_t>>
MeshModel::fromEveryRank(std::span<const uint64_t> own) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<uint64_t> all(ranks * own.size());
  TESSERA_RETURN_IF_ERROR(everybody.run(comm::Collective::allGather(
      artifact::ElementType::i64, own.data(), all.data(),
      std::vector<uint64_t>(ranks, own.size()))));
  return all;
}

StatusOr<bool> MeshModel::anywhere(bool condition) {
  int32_t flag = condition;
  TESSERA_RETURN_IF_ERROR(everybody.run(comm::Collective::allReduce(
      artifact::ElementType::i32, comm::Reduction::max, &flag, 1)));
  return flag != 0;
}

} // namespace tessera
