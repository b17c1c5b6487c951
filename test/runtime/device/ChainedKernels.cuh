// Two products one behind the other as attention has them, O = (Q Kᵀ) V: a
// producer, two warpgroups that take turns, the left operand of the second
// product in registers. The emulated GPU runs it, right and with a planted
// defect; nvcc compiles it for the gates.
#pragma once
#include "runtime/device/Device.cuh"
#include "runtime/device/Hopper.cuh"

namespace tessera::device {

/// What `chained` below does wrong.
enum class ChainedDefect {
  none,
  noTurnBegin,         // nobody passes the first turn
  noTurnEnd,           // nobody takes the last one
  keepsTurn,           // a warpgroup passes its turn to itself
  missesTurn,          // a warpgroup multiplies out of turn, and once less
  valuesReleasedEarly, // gives values back while products read them
  keysReleasedByAll,   // every lane gives keys back
  keysKept,            // nobody gives them back
  readsScoresEarly,    // before they are multiplied
  readsOutputEarly,    // before it is
  startsFromOnes,      // adds to what is no sum
  forgetsLastValues,   // leaves the last product out
  wrongStage,          // multiplies by the other stage
  waitsForOtherParity, // meanwhile: for a phase that has not come
  roundsWeightsApart,  // writes pairs as single elements, in the wrong order
  last
};

struct Chained {
  static constexpr int kQueries = 128, kKeys = 64, kDim = 64, kStages = 2,
                       kThreads = 384;
  using Query = SharedTile<bf16, kQueries, kDim>;
  using Keys = SharedTiles<bf16, kStages, kKeys, kDim>;
  using Scores = Tile<float, Fragments<kQueries, kKeys, 8, 1>>;
  using Weights = Tile<bf16, Fragments<kQueries, kKeys, 8, 1>>;
  using Output = Tile<float, Fragments<kQueries, kDim, 8, 1>>;
  using Turn = Turns<2>;
  static constexpr int kBytes = Keys::One::kBytes;
  static constexpr int kRings = Query::kBytes + 2 * kStages * kBytes;
  static constexpr int kShared = kRings + 3 * 128;

  const TensorMap &mapQ, &mapK, &mapV;
  float *out;
  int tokens;
  ChainedDefect defect;
  Query query = {sharedMemory()};
  Keys keys = {sharedMemory() + Query::kBytes};
  Keys values = {sharedMemory() + Query::kBytes + kStages * kBytes};
  Pipeline<1, 2> queryRing = Pipeline<1, 2>(sharedMemory() + kRings);
  Pipeline<kStages, 2> keyRing =
      Pipeline<kStages, 2>(sharedMemory() + kRings + 128);
  Pipeline<kStages, 2> valueRing =
      Pipeline<kStages, 2>(sharedMemory() + kRings + 256);

  TESSERA_DEVICE bool has(ChainedDefect planted) const {
    return defect == planted;
  }

  // By one thread.
  TESSERA_DEVICE void produce() {
    acquireMap(mapQ);
    acquireMap(mapK);
    acquireMap(mapV);
    bring(query, mapQ, queryRing.full(queryRing.acquire(Query::kBytes)), 0, 0);
    for (int key = 0; key < tokens; key += kKeys) {
      int stage = keyRing.acquire(kBytes);
      bring(keys[stage], mapK, keyRing.full(stage), 0, key);
      stage = valueRing.acquire(kBytes);
      bring(values[stage], mapV, valueRing.full(stage), 0, key);
    }
  }

  TESSERA_DEVICE void pass() const {
    if (has(ChainedDefect::keepsTurn))
      arrive(Turn::kFirst + warpgroup(), Turn::kThreads);
    else
      Turn::pass();
  }
  TESSERA_DEVICE void releaseKeys() {
    if (has(ChainedDefect::keysKept))
      return;
    if (has(ChainedDefect::keysReleasedByAll))
      arrive(keyRing.empty(keyRing.taken));
    else
      keyRing.releaseLast();
  }
  TESSERA_DEVICE Weights weigh(const Scores &scores) const {
    Weights weights = toBf16(scores);
    if (has(ChainedDefect::roundsWeightsApart))
      for (int r = 0; r < Fragments<kQueries, kKeys, 8, 1>::kEach; ++r)
        weights.at[r] = toBf16(scores.at[r ^ 1]);
    return weights;
  }

  TESSERA_DEVICE void startOutput(const Weights &weights, Output &output) {
    int stage = valueRing.await();
    multiplyAsync(weights,
                  values[has(ChainedDefect::wrongStage) ? stage ^ 1 : stage],
                  output);
  }

  // The next tile's scores; meanwhile the last one's part of the output.
  TESSERA_DEVICE void step(Weights &weights, Output &output, bool inTurn) {
    if (inTurn)
      Turn::take();
    int stage = keyRing.await();
    Scores scores;
    if (has(ChainedDefect::startsFromOnes)) {
      scores = splat<Fragments<kQueries, kKeys, 8, 1>>(1.0f);
      multiplyAsync(query, transposed(keys[stage]), scores);
    } else {
      multiplyAsync<false>(query, transposed(keys[stage]), scores);
    }
    startOutput(weights, output);
    if (has(ChainedDefect::valuesReleasedEarly))
      valueRing.releaseLast();
    if (inTurn)
      pass();
    Weights early;
    if (has(ChainedDefect::readsScoresEarly))
      early = weigh(scores);
    wgmmaWait<1>(scores.at);
    releaseKeys();
    if (has(ChainedDefect::waitsForOtherParity))
      await(valueRing.full(valueRing.taken),
            valueRing.next.parity ^ (valueRing.next.stage != 0));
    else
      valueRing.meanwhile();
    wgmmaWait<0>(output.at);
    if (!has(ChainedDefect::valuesReleasedEarly))
      valueRing.releaseLast();
    weights = has(ChainedDefect::readsScoresEarly) ? early : weigh(scores);
  }

  // By a warpgroup.
  TESSERA_DEVICE void consume() {
    if (!has(ChainedDefect::noTurnBegin))
      Turn::begin();
    queryRing.await();
    Scores scores;
    multiplyAsync<false>(query, transposed(keys[keyRing.await()]), scores);
    wgmmaWait<0>(scores.at);
    releaseKeys();
    Weights weights = weigh(scores);
    auto output = splat<Fragments<kQueries, kDim, 8, 1>>(0.0f);
    for (int key = kKeys; key < tokens; key += kKeys)
      step(weights, output,
           !has(ChainedDefect::missesTurn) || warpgroup() != 1 || key > kKeys);
    if (!has(ChainedDefect::forgetsLastValues))
      startOutput(weights, output);
    if (!has(ChainedDefect::readsOutputEarly))
      wgmmaWait<0>(output.at);
    store(output, out, kDim, 1);
    if (has(ChainedDefect::readsOutputEarly))
      wgmmaWait<0>(output.at);
    if (!has(ChainedDefect::noTurnEnd))
      Turn::end();
  }

  TESSERA_DEVICE void run() {
    queryRing.make();
    keyRing.make();
    valueRing.make();
    if (warpgroup() == 2) {
      releaseRegisters<24>();
      if (warp() == 8 && electLane())
        produce();
    } else {
      acquireRegisters<240>();
      consume();
    }
  }
};

// sizes: keys, defect. The defect is a size on the emulated GPU, so that one
// kernel has them all.
TESSERA_KERNEL(chained, TESSERA_ALONE(Chained::kThreads), 4, 2) {
  const auto &instance = launch.instance();
#if defined(__CUDACC__)
  ChainedDefect defect = ChainedDefect::none;
#else
  auto defect = static_cast<ChainedDefect>(instance.sizes[1]);
#endif
  Chained{*instance.buffer<const TensorMap>(0),
          *instance.buffer<const TensorMap>(1),
          *instance.buffer<const TensorMap>(2),
          instance.buffer<float>(3),
          static_cast<int>(instance.sizes[0]),
          defect}
      .run();
}

} // namespace tessera::device
