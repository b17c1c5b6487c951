// How the emulated GPU computes in its second mode: sums of tensor cores
// against a bit-accurate model that others made and compared with GPUs, and
// functions against their error bounds.
#include "runtime/device/Device.cuh"
#include "runtime/device/Hopper.cuh"
#include "runtime/hal/emulated/BlockMachine.h"
#include "runtime/hal/emulated/MatrixOperand.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

using namespace tessera;
using namespace tessera::device;
using emulated::Numerics;

namespace {

void run(const char *chip, const Numerics &numerics, unsigned threads,
         const std::function<void()> &kernel) {
  emulated::LaunchOptions options{"numerics", {}, threads, 16384, 1};
  options.chip = *emulated::chipOf(chip);
  options.numerics = numerics;
  emulated::BlockMachine blocks;
  Status status = blocks.launch(
      options,
      [](Machine &machine, const void *arguments) {
        device::machine = &machine;
        (*static_cast<const std::function<void()> *>(arguments))();
      },
      &kernel, {});
  EXPECT_EQ(status.message(), "");
}

constexpr Numerics kExact{}, kHardware{true, 0};

MatrixElement elementOf(const std::string &name) {
  for (MatrixElement element :
       {MatrixElement::bf16, MatrixElement::f16, MatrixElement::tf32,
        MatrixElement::e4m3, MatrixElement::e5m2})
    if (emulated::nameOf(element) == name)
      return element;
  ADD_FAILURE() << "unknown element type " << name;
  return MatrixElement::bf16;
}

/// 4096 + 16 products of 1.5 × 2^-12, by one mma.sync on bf16.
float sumBeyondItsLastBit(const char *chip, const Numerics &numerics) {
  float result = 0;
  run(chip, numerics, 32, [&] {
    const uint32_t left = toBf16Pair(1.5f, 1.5f),
                   right = toBf16Pair(0x1p-12f, 0x1p-12f);
    FragmentA a{{left, left, left, left}};
    FragmentB b{{right, right}};
    FragmentC c{{4096, 4096, 4096, 4096}};
    multiplyBf16(c.at, a, b);
    finishWarpProducts();
    if (lane() == 0)
      result = c.at[0];
  });
  return result;
}

} // namespace

// A unit in the last place of 4096 is 2^-11; the products are three quarters of
// it. Each alone rounds up; sm_80 keeps one bit below it, of half the products
// at a time; sm_90 keeps two.
TEST(Probe, P16SumsOfTensorCoresAreTruncated) {
  for (const char *chip : {"sm_80", "sm_90a"})
    EXPECT_EQ(sumBeyondItsLastBit(chip, kExact), 4096 + 16 * 0x1p-11f) << chip;
  EXPECT_EQ(sumBeyondItsLastBit("sm_80", kHardware), 4096 + 8 * 0x1p-11f);
  EXPECT_EQ(sumBeyondItsLastBit("sm_90a", kHardware), 4096 + 12 * 0x1p-11f);
}

// Inputs/core_sums.py writes them, by another's model of the cores.
TEST(CoreSums, AreThoseOfABitAccurateModel) {
  std::ifstream file(TESSERA_TEST_FOLDER "/Inputs/core-sums.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    std::istringstream words(line);
    std::string chip, type;
    words >> chip >> type >> std::hex;
    const MatrixElement element = elementOf(type);
    const unsigned depth = 32 / emulated::bytesOf(element);
    auto next = [&] {
      uint32_t bits = 0;
      words >> bits;
      return bits;
    };
    auto operand = [&] {
      std::vector<float> values(depth);
      for (float &value : values) {
        const uint32_t bits = next();
        value = emulated::readElement(
            element, reinterpret_cast<const std::byte *>(&bits));
      }
      return values;
    };
    float c = std::bit_cast<float>(next());
    const std::vector<float> a = operand(), b = operand();
    const auto sum = std::bit_cast<float>(next());
    ASSERT_TRUE(words) << line;
    emulated::CoreProduct(emulated::chipOf(chip)->cores, element, b.data(), 1)
        .add(&c, a.data());
    EXPECT_EQ(std::bit_cast<uint32_t>(c), std::bit_cast<uint32_t>(sum)) << line;
  }
  EXPECT_GE(cases, 100);
}

// Columns of one product do not depend on each other.
TEST(CoreSums, OfColumnsAreThoseOfOneAlone) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  constexpr unsigned kColumns = 24, kDepth = 16;
  float a[kDepth], b[kDepth * kColumns], c[kColumns];
  for (float &x : a)
    x = toFloat(toBf16(normal(random)));
  for (float &x : b)
    x = toFloat(toBf16(normal(random)));
  for (float &x : c)
    x = normal(random);
  for (const char *chip : {"sm_80", "sm_90a"}) {
    const emulated::CoreSums cores = emulated::chipOf(chip)->cores;
    float together[kColumns];
    std::copy_n(c, kColumns, together);
    emulated::CoreProduct(cores, MatrixElement::bf16, b, kColumns)
        .add(together, a);
    for (unsigned j = 0; j < kColumns; ++j) {
      float alone = c[j], column[kDepth];
      for (unsigned k = 0; k < kDepth; ++k)
        column[k] = b[k * kColumns + j];
      emulated::CoreProduct(cores, MatrixElement::bf16, column, 1)
          .add(&alone, a);
      EXPECT_EQ(together[j], alone) << chip << ", column " << j;
    }
  }
}

namespace {
/// exp, tanh, rsqrt and 2^x of `count` arguments.
std::vector<float> functionsOf(const Numerics &numerics, int count) {
  std::vector<float> results(4 * count);
  run("sm_90a", numerics, 32, [&] {
    for (int i = lane(); i < count; i += 32) {
      const float x = float(i - count / 2) / 16;
      results[i] = device::exp(x);
      results[count + i] = device::tanh(x);
      results[2 * count + i] = device::rsqrt(std::fabs(x) + 0.5f);
      results[3 * count + i] = exp2Approximate(x);
    }
  });
  return results;
}

// By how many units in the last place they differ.
int64_t apart(float x, float y) {
  return std::abs(int64_t(std::bit_cast<int32_t>(x)) -
                  std::bit_cast<int32_t>(y));
}
} // namespace

TEST(Functions, ErrWithinTheirBoundsAndAlwaysTheSame) {
  constexpr int kCount = 1000;
  const std::vector<float> first = functionsOf(kHardware, kCount),
                           again = functionsOf(kHardware, kCount),
                           other = functionsOf({true, 1}, kCount);
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
  int64_t most = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = double(i - kCount / 2) / 16;
    const double exact[] = {std::exp(x), std::tanh(x),
                            1 / std::sqrt(std::fabs(x) + 0.5), std::exp2(x)};
    for (int f = 0; f < 4; ++f) {
      const auto expected = static_cast<float>(exact[f]);
      const int64_t off = apart(first[f * kCount + i], expected);
      EXPECT_LE(off, 2) << "function " << f << " of " << x;
      most = std::max(most, off);
    }
    EXPECT_LE(std::fabs(first[kCount + i]), 1);
  }
  EXPECT_EQ(most, 2);
  EXPECT_EQ(first[kCount / 2], 1) << "exp(0)";
}

TEST(Functions, SubnormalPowersAreFlushed) {
  for (const Numerics &numerics : {kExact, kHardware})
    run("sm_90a", numerics, 32, [] {
      if (lane())
        return;
      EXPECT_EQ(exp2Approximate(-126.5f), 0);
      EXPECT_EQ(exp2Approximate(-INFINITY), 0);
      EXPECT_GT(exp2Approximate(-125.5f), 0);
    });
}

TEST(Functions, TanhOfGeluErrsByPartsOfOne) {
  for (const Numerics &numerics : {kExact, kHardware})
    run("sm_90a", numerics, 32, [] {
      for (int i = lane(); i < 8000; i += 32) {
        const float x = float(i - 4000) / 256;
        EXPECT_NEAR(tanhApproximate(x), std::tanh(double(x)), 0x1p-21) << x;
      }
      EXPECT_EQ(tanhApproximate(INFINITY), 1);
      EXPECT_NEAR(tanhApproximate(-INFINITY), -1, 0x1p-21);
      EXPECT_TRUE(std::isnan(tanhApproximate(NAN)));
    });
}

TEST(Numerics, AreParsed) {
  EXPECT_FALSE(emulated::parseNumerics("exact", "X")->isHardware);
  EXPECT_TRUE(emulated::parseNumerics("hardware", "X")->isHardware);
  EXPECT_EQ(emulated::parseNumerics("hardware:7", "X")->seed, 7u);
  for (const char *wrong : {"", "hard", "hardware:", "hardware:x", "hardware7"})
    EXPECT_NE(emulated::parseNumerics(wrong, "X")
                  .message()
                  .find("X is '" + std::string(wrong) + "'"),
              std::string::npos);
}
