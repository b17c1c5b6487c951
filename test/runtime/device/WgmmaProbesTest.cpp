// The probes of ProbesTest.cpp that are about wgmma: registers of sums and of A
// between fence, product and wait, and what of shared memory a product reads.
#include "test/runtime/device/Races.h"

using namespace tessera;
using namespace tessera::device;

namespace {

/// One product of ones, into `d`.
void multiplyOnes(float (&d)[32], Box box, int step) {
  wgmma<Inputs::bf16>(d, box.kMajor(step), box.kMajor(step));
  wgmmaCommit();
}

constexpr uint32_t kOnes = 0x3f803f80, kTwos = 0x40004000; // pairs of bf16

} // namespace

TEST(Probe, P2RegistersThatNoFenceNames) {
  Planted planted;
  planted.options.threads = 128;
  std::vector<float> sums(128);
  planted.kernel = [&](bool isWrong) {
    Box box{sharedMemory()};
    fill(box, 1);
    fenceAsync();
    device::sync();
    float d[32] = {}, e[32] = {};
    wgmmaFence(d);
    multiplyOnes(d, box, 0);
    for (float &sum : e)
      sum = 3;
    if (!isWrong)
      wgmmaFence(e);
    multiplyOnes(e, box, 1);
    wgmmaWait<0>(d, e);
    sums[thread()] = d[31] + e[31];
  };
  planted.isRight = [&] { return sums == std::vector<float>(128, 35); };
  planted.check("by no wgmma.fence since the last wait");
}

TEST(Probe, P2SumsWrittenAfterTheirFence) {
  Planted planted;
  planted.options.threads = 128;
  std::vector<float> sums(128);
  planted.kernel = [&](bool isWrong) {
    Box box{sharedMemory()};
    fill(box, 1);
    fenceAsync();
    device::sync();
    float d[32] = {};
    if (!isWrong)
      d[31] = 3;
    wgmmaFence(d);
    if (isWrong)
      d[31] = 3;
    multiplyOnes(d, box, 0);
    wgmmaWait<0>(d);
    sums[thread()] = d[31];
  };
  planted.isRight = [&] { return sums == std::vector<float>(128, 19); };
  planted.check("were written after the last wgmma.fence");
}

TEST(Probe, P2FragmentsOfAWrittenAfterTheLastFence) {
  Planted planted;
  planted.options.threads = 128;
  planted.kernel = [&](bool isWrong) {
    Box box{sharedMemory()};
    fill(box, 1);
    fenceAsync();
    device::sync();
    float d[32] = {};
    FragmentA a[1] = {{{kOnes, kOnes, kOnes, kOnes}}};
    wgmmaFence(d, a);
    if (isWrong)
      a[0].at[3] = kTwos;
    wgmma<Inputs::bf16>(d, a[0], box.kMajor(0));
    wgmmaCommit();
    wgmmaWait<0>(d);
  };
  planted.check("were written after the last wgmma.fence");
}

TEST(Probe, P3RegistersOfAWrittenInFlight) {
  Planted planted;
  planted.options.threads = 128;
  planted.kernel = [&](bool isWrong) {
    Box box{sharedMemory()};
    fill(box, 1);
    fenceAsync();
    device::sync();
    float d[32] = {};
    FragmentA a[1] = {{{kOnes, kOnes, kOnes, kOnes}}};
    wgmmaFence(d, a);
    wgmma<Inputs::bf16>(d, a[0], box.kMajor(0));
    wgmmaCommit();
    if (isWrong)
      a[0].at[0] = kTwos;
    wgmmaWait<0>(d);
    a[0].at[0] = kTwos;
  };
  planted.check("has written a register of A of a wgmma in flight");
}

TEST(Probe, P3TileThatIsAWrittenInFlight) {
  Planted planted;
  planted.options.threads = 128;
  planted.kernel = [&](bool isWrong) {
    using Square = Fragments<64, 64, 4, 1>;
    SharedTile<bf16, 64, 64> right{sharedMemory()};
    fill(Box{sharedMemory()}, 1);
    fenceAsync();
    device::sync();
    auto sum = splat<Square>(0.0f);
    auto left = toBf16(splat<Square>(1.0f));
    multiplyAsync(left, right, sum);
    if (isWrong)
      left.at[Square::kEach - 1] = toBf16(2.0f);
    wgmmaWait<0>(sum.at);
    left.at[0] = toBf16(2.0f);
  };
  planted.check("has written a register of A of a wgmma in flight");
}

TEST(Probe, P15FenceWithoutABarrier) {
  Planted planted;
  planted.options.threads = 256;
  planted.kernel = [&](bool isWrong) {
    Box box{sharedMemory()};
    if (thread() >= 128) {
      fill(box, 1);
      fenceAsync();
    }
    if (!isWrong)
      device::sync();
    if (thread() < 128) {
      float d[32] = {};
      wgmmaFence(d);
      multiplyOnes(d, box, 0);
      wgmmaWait<0>(d);
    }
  };
  planted.check("nothing orders the two");
}

TEST(Probe, P17OperandBeyondItsTile) {
  Planted planted;
  planted.options.threads = 128;
  std::vector<float> sums(128);
  planted.kernel = [&](bool isWrong) {
    Box box{sharedMemory()};
    fill(box, 1);
    fenceAsync();
    device::sync();
    auto lastOf = [&](auto &d) {
      wgmmaFence(d);
      wgmma<Inputs::bf16>(d, box.kMajor(0), box.kMajor(0));
      wgmmaCommit();
      wgmmaWait<0>(d);
      return d[std::size(d) - 1];
    };
    float within[32] = {}, beyond[64] = {}; // the tile has 64 columns, not 128
    sums[thread()] = isWrong ? lastOf(beyond) : lastOf(within);
  };
  planted.isRight = [&] { return sums == std::vector<float>(128, 16); };
  planted.check("wrong");
}
