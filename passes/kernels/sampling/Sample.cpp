// Sampling, on all targets: the launches are listed in Sample.h.
#include "passes/kernels/sampling/Sample.h"
#include "dialects/graph/GraphSamplingOps.h"
#include "passes/kernels/ClusterLaunch.h"
#include <limits>

using namespace mlir;
using namespace tessera;
using Compare = arith::CmpIPredicate;
using Values = SampleOps::Values;

// Bits of a word of `allowed`, which is the number of runs of tokens in a row.
static constexpr int64_t kRuns = 32;
// Words of such a run that a GPU's block has if there are as many, in one tile.
static constexpr int64_t kWordsOfBlock = 512;
// Changed logits of one block.
static constexpr int64_t kChangesOfBlock = 16;

static int64_t wordsOfBlock(const SampleShape &shape,
                            const TileTarget &target) {
  if (!target.gpu)
    return shape.words;
  return shape.words < kWordsOfBlock ? target.lanes : kWordsOfBlock;
}

// Bit r of word w is token r × words + w: a block has one run of a row, or on a
// GPU some of its words.
static void emitMask(OpBuilder &b, tile::KernelOp kernel,
                     const SampleShape &shape, const TileTarget &target) {
  SampleOps e{b, kernel.getLoc(), target.lanes};
  auto buffers = kernel.getBuffers();
  int64_t most = wordsOfBlock(shape, target);
  if (target.gpu)
    e.lanes = most;
  Value pieces = e.index(partsOf(shape.words, most)), runs = e.index(kRuns);
  Value piece = e.make<arith::RemUIOp>(kernel.getBlockNumber(), pieces);
  Value block = e.make<arith::DivUIOp>(kernel.getBlockNumber(), pieces);
  Value begin = e.mul(piece, e.index(most));
  Value batch = e.make<arith::DivUIOp>(block, runs),
        run = e.make<arith::RemUIOp>(block, runs);
  Value first = e.mul(run, e.index(shape.words));
  Value row = e.add(e.mul(batch, e.index(shape.vocab)), first);
  Value end = b.create<arith::MaxSIOp>(
      e.loc, e.index(0),
      e.min(e.index(shape.words), e.sub(e.index(shape.vocab), first)));
  end = e.min(end, e.add(begin, e.index(most)));
  Value words = e.mul(batch, e.index(shape.words));
  Value shift = e.cast(run, b.getI32Type());
  e.forTiles(
      buffers[0], row, begin, end, most, {},
      [&](const SampleOps::Place &place, Value tile, ValueRange) -> Values {
        Value bits =
            e.loadTile(buffers[1], e.add(words, place.at), place.bound);
        Value bit = e.make<arith::AndIOp>(
            e.make<arith::ShRUIOp>(bits, e.tileOf(shift)), e.i32(1));
        Value isAllowed = e.compare(Compare::ne, bit, e.i32(0));
        Value kept = e.select(isAllowed, tile,
                              e.f32(-std::numeric_limits<float>::infinity()));
        e.storeTile(kept, buffers[2], e.add(row, place.at), place.bound);
        return {};
      });
}

// One changed logit, computed from the model's; the launch does not read what
// it writes here.
static void emitChange(const SampleOps &e, tile::KernelOp kernel,
                       const SampleShape &shape, Value batch, Value entry,
                       Value token) {
  OpBuilder &b = e.b;
  auto buffers = kernel.getBuffers();
  Value at = e.cast(token, b.getIndexType());
  Value words = e.index(shape.words);
  Value word = e.load(buffers[1], e.add(e.mul(batch, words),
                                        e.make<arith::RemUIOp>(at, words)));
  Value run = e.cast(e.make<arith::DivUIOp>(at, words), b.getI32Type());
  Value bit =
      e.make<arith::AndIOp>(e.make<arith::ShRUIOp>(word, run), e.i32(1));
  e.ifTrue(e.compare(Compare::ne, bit, e.i32(0)), [&] {
    Value place = e.add(e.mul(batch, e.index(shape.vocab)), at);
    auto change = [&](int64_t i) {
      return e.load(buffers[3], e.add(e.mul(entry, e.index(4)), e.index(i)));
    };
    Value logit = e.make<arith::AddFOp>(e.load(buffers[0], place), change(0));
    Value isAbove = b.create<arith::CmpFOp>(e.loc, arith::CmpFPredicate::OGT,
                                            logit, e.f32(0));
    Value divisor = e.select(isAbove, change(1), change(2));
    logit = e.make<arith::DivFOp>(logit, divisor);
    e.store(e.make<arith::SubFOp>(logit, change(3)), buffers[4], place);
  });
}

static void emitChanges(OpBuilder &b, tile::KernelOp kernel,
                        const SampleShape &shape, const TileTarget &target) {
  SampleOps e{b, kernel.getLoc(), target.lanes};
  int64_t blocks = partsOf(shape.entries, kChangesOfBlock);
  Value block = kernel.getBlockNumber();
  Value batch = e.make<arith::DivUIOp>(block, e.index(blocks));
  Value first = e.mul(e.make<arith::RemUIOp>(block, e.index(blocks)),
                      e.index(kChangesOfBlock));
  Value end =
      e.min(e.add(first, e.index(kChangesOfBlock)), e.index(shape.entries));
  e.forRange(first, end, e.index(1), {}, [&](Value i, ValueRange) -> Values {
    Value entry = e.add(e.mul(batch, e.index(shape.entries)), i);
    Value token = e.load(kernel.getBuffers()[2], entry);
    Value isToken = e.compare(Compare::ult, token, e.i32(shape.vocab));
    e.ifTrue(isToken,
             [&] { emitChange(e, kernel, shape, batch, entry, token); });
    return {};
  });
}

//===--- entry ------------------------------------------------------------===//

llvm::Expected<SmallVector<Value>>
SampleLaunch::operator()(StringRef step, int64_t blocks, ValueRange inputs,
                         ArrayRef<tile::Access> access, TypeRange results,
                         BuildKernel build) const {
  LaunchSpec spec;
  spec.name = (cluster.getName() + step).str();
  spec.skeleton = tile::Skeleton::sample;
  spec.summary = summarize(cluster);
  spec.access.assign(access.begin(), access.end());
  for (Value input : inputs)
    spec.buffers.push_back(bufferType(input.getType()));
  for (unsigned i = inputs.size(); i < access.size(); ++i)
    spec.buffers.push_back(
        bufferType(results[results.size() - (access.size() - i)]));
  spec.blocks = blocks;
  spec.key = bodyKey(cluster) + step.str();
  spec.build = std::move(build);
  return context.launch(cluster, spec, inputs, results);
}

llvm::Expected<SmallVector<Value>> tessera::tileSample(graph::ClusterOp cluster,
                                                       TilingContext &context) {
  auto ops = cluster.getBody().getOps<graph::SampleOp>();
  if (ops.empty() || cluster.getNumResults() != 1)
    return llvm::createStringError(
        "a sample cluster holds one sample and yields its result");
  graph::SampleOp op = *ops.begin();
  SmallVector<Value> from;
  for (Value operand : op->getOperands()) {
    auto argument = dyn_cast<BlockArgument>(operand);
    if (!argument)
      return llvm::createStringError(
          "an operand of sample is not an input of its cluster");
    from.push_back(cluster.getInputs()[argument.getArgNumber()]);
  }
  auto type = graph::tensorType(op.getLogits());
  SampleShape shape{type.getDimSize(0), type.getDimSize(1),
                    graph::tensorType(op.getAllowed()).getDimSize(1),
                    graph::tensorType(op.getChanged()).getDimSize(1)};
  Value logits = from[0], allowed = from[1], changed = from[2],
        changes = from[3], options = from[4], limits = from[5];
  using tile::Access;
  SampleLaunch launch{cluster, context};
  auto building = [&](void (*emit)(OpBuilder &, tile::KernelOp,
                                   const SampleShape &, const TileTarget &)) {
    return [emit, shape](tile::KernelOp kernel, const TileTarget &target,
                         OpBuilder &b) -> llvm::Error {
      emit(b, kernel, shape, target);
      return llvm::Error::success();
    };
  };
  int64_t runs =
      kRuns * partsOf(shape.words, wordsOfBlock(shape, context.target()));
  auto masked = launch("_allowed", shape.batch * runs, {logits, allowed},
                       {Access::read, Access::read, Access::write}, type,
                       building(emitMask));
  if (!masked)
    return masked.takeError();
  auto adjusted =
      launch("_changed", shape.batch * partsOf(shape.entries, kChangesOfBlock),
             {logits, allowed, changed, changes, masked->front()},
             {Access::read, Access::read, Access::read, Access::read,
              Access::read_write},
             type, building(emitChanges));
  if (!adjusted)
    return adjusted.takeError();
  if (context.isGpu() && shape.vocab >= gpu::kLeastLogitsOfParts) {
    auto tokens =
        gpu::drawByParts(launch, shape, adjusted->front(), options, limits);
    if (!tokens)
      return tokens.takeError();
    return SmallVector<Value>{*tokens};
  }
  auto drawn = launch(
      "", shape.batch, {adjusted->front(), options, limits},
      {Access::read, Access::read, Access::read, Access::write, Access::write},
      {type, cluster.getResult(0).getType()}, building(emitSampleChoice));
  if (!drawn)
    return drawn.takeError();
  return SmallVector<Value>{drawn->back()};
}
