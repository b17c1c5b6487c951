// Elementary functions against libm in double precision, in units of the last
// place of f32, over ranges, at edges and at denormals.
#include "test/compiler/target/cpu/KernelRunner.h"
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

namespace tessera::cpu::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Function {
  std::string op; // "math.exp"
  std::function<double(double)> reference;
  double low, high;           // where every result is checked
  std::vector<float> special; // further arguments
};

const std::vector<Function> &functions() {
  static const std::vector<Function> list = {
      {"math.exp",
       [](double x) { return std::exp(x); },
       -104,
       89,
       {0.0f, -0.0f, kInf, -kInf, kNan, -1000.0f, 1000.0f, 88.72f, -103.9f}},
      {"math.exp2",
       [](double x) { return std::exp2(x); },
       -150,
       129,
       {0.0f, 127.999f, -149.0f, kInf, -kInf, kNan}},
      {"math.expm1",
       [](double x) { return std::expm1(x); },
       -20,
       89,
       {0.0f, 1e-30f, -1e-10f, kInf, -kInf, kNan}},
      {"math.log",
       [](double x) { return std::log(x); },
       0,
       100,
       {0.0f, -0.0f, -1.0f, 1.0f, 1e-45f, 1e-40f, 3e38f, kInf, kNan}},
      {"math.log2",
       [](double x) { return std::log2(x); },
       0,
       4,
       {0.0f, -1.0f, 1.0f, 2.0f, 1e-45f, 3e38f, kInf, kNan}},
      {"math.log10",
       [](double x) { return std::log10(x); },
       0,
       1e6,
       {0.0f, -1.0f, 1.0f, 1e-45f, kInf, kNan}},
      {"math.log1p",
       [](double x) { return std::log1p(x); },
       -1,
       10,
       {0.0f, 1e-30f, -1e-10f, -1.0f, -2.0f, 3e38f, kInf, kNan}},
      {"math.tanh",
       [](double x) { return std::tanh(x); },
       -12,
       12,
       {0.0f, 1e-30f, -1e-5f, 100.0f, kInf, -kInf, kNan}},
      {"math.erf",
       [](double x) { return std::erf(x); },
       -5,
       5,
       {0.0f, 1e-30f, -1e-5f, 0.95f, 100.0f, kInf, -kInf, kNan}},
      {"math.sin",
       [](double x) { return std::sin(x); },
       -200000,
       200000,
       {0.0f, 1e-30f, 1e9f, 3.14159274f, kNan}},
      {"math.cos",
       [](double x) { return std::cos(x); },
       -200000,
       200000,
       {0.0f, 1e9f, 1.57079637f, kNan}},
      {"math.rsqrt",
       [](double x) { return 1 / std::sqrt(x); },
       0,
       1000,
       {0.0f, 1e-45f, -1.0f, kInf, kNan}},
      {"math.sqrt",
       [](double x) { return std::sqrt(x); },
       0,
       1000,
       {0.0f, 1e-45f, -1.0f, kInf, kNan}},
  };
  return list;
}

// Distance in units of the last place of the exact value as f32.
double ulps(float got, double exact) {
  if (std::isnan(exact))
    return std::isnan(got) ? 0 : kInf;
  float rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || std::isinf(got))
    return got == rounded ? 0 : kInf;
  int exponent;
  std::frexp(exact, &exponent);
  double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::abs(got - exact) / unit;
}

std::vector<float> arguments(const Function &function) {
  std::vector<float> xs = function.special;
  constexpr int kSteps = 200000;
  for (int i = 0; i <= kSteps; ++i)
    xs.push_back(static_cast<float>(
        function.low + (function.high - function.low) * i / kSteps));
  // every binade towards zero, where the range has it
  for (int e = -126; e < 8; ++e)
    for (float m : {1.0f, 1.1f, 1.3f, 1.41421f, 1.6f, 1.99f})
      for (float sign : {-1.0f, 1.0f}) {
        float x = sign * std::ldexp(m, e);
        if (x >= function.low && x <= function.high)
          xs.push_back(x);
      }
  xs.resize((xs.size() + 47) / 48 * 48, 1.0f);
  return xs;
}

using MathTest = TargetTest;

// Tiles of 3×16 take the vector code, tiles of 48×1 the scalar code.
TEST_P(MathTest, FunctionsAreWithinFourUlp) {
  std::string text;
  for (const Function &function : functions())
    for (const char *shape : {"3x16", "48x1"})
      text += kernelText(
          function.op.substr(5) + "_" + shape,
          "%x: memref<?x" + std::string(shape) + "xf32>, %y: memref<?x" +
              shape + "xf32>",
          "rw",
          "%c0 = arith.constant 0 : index\n"
          "%a = tile.load %x[%block, %c0, %c0] along [1, 2] : memref<?x" +
              std::string(shape) + "xf32>, vector<" + shape +
              "xf32>\n%b = " + function.op + " %a : vector<" + shape +
              "xf32>\n"
              "tile.store %b, %y[%block, %c0, %c0] along [1, 2] : vector<" +
              shape + "xf32>, memref<?x" + shape + "xf32>");
  Kernels kernels(text, target);
  for (const Function &function : functions()) {
    std::vector<float> xs = arguments(function);
    for (const char *shape : {"3x16", "48x1"}) {
      std::vector<float> ys(xs.size());
      kernels.run(function.op.substr(5) + "_" + shape, {xs.data(), ys.data()},
                  xs.size() / 48);
      double worst = 0;
      float where = 0;
      for (size_t i = 0; i < xs.size(); ++i)
        if (double error = ulps(ys[i], function.reference(xs[i]));
            error > worst) {
          worst = error;
          where = xs[i];
        }
      EXPECT_LE(worst, 4.0) << function.op << " " << shape << " at " << where;
      RecordProperty(function.op + "_" + shape, std::to_string(worst));
      if (std::getenv("TESSERA_PRINT_ULPS"))
        std::printf("%-12s %-5s %.2f ulp at %g\n", function.op.c_str(), shape,
                    worst, where);
    }
  }
}

TEST_P(MathTest, PowerIsWithinFourUlp) {
  Kernels kernels(kernelText("power",
                             "%x: memref<?x32xf32>, %y: memref<?x32xf32>, %z: "
                             "memref<?x32xf32>",
                             "rrw", R"(
    %c0 = arith.constant 0 : index
    %a = tile.load %x[%block, %c0] along [1] : memref<?x32xf32>, vector<32xf32>
    %b = tile.load %y[%block, %c0] along [1] : memref<?x32xf32>, vector<32xf32>
    %c = math.powf %a, %b : vector<32xf32>
    tile.store %c, %z[%block, %c0] along [1] : vector<32xf32>, memref<?x32xf32>)"),
                  target);
  std::vector<float> xs, ys;
  for (float x :
       {0.0f, 1e-45f, 1e-40f, 1e-20f, 0.1f, 0.9f, 0.95f, 0.999f, 0.9999999f,
        1.0f, 1.0000001f, 1.5f, 2.0f, 10.0f, 500000.0f, 3e38f, kInf})
    for (float y :
         {-1000.0f, -10.5f, -2.0f, -1.0f, -0.5f, -1e-10f, 0.0f, 1e-10f, 0.25f,
          0.5f, 1.0f, 2.0f, 3.0f, 7.75f, 1000.0f, 100000.0f}) {
      xs.push_back(x);
      ys.push_back(y);
    }
  std::vector<float> random = randomFloats(64000, 5);
  for (size_t i = 0; i + 1 < random.size(); i += 2) {
    xs.push_back(std::exp(random[i] * 5));
    ys.push_back(random[i + 1] * 30);
  }
  xs.resize((xs.size() + 31) / 32 * 32, 1.0f);
  ys.resize(xs.size(), 1.0f);
  std::vector<float> zs(xs.size());
  kernels.run("power", {xs.data(), ys.data(), zs.data()}, xs.size() / 32);
  for (size_t i = 0; i < xs.size(); ++i)
    ASSERT_LE(ulps(zs[i], std::pow(double(xs[i]), double(ys[i]))), 4.0)
        << xs[i] << " ^ " << ys[i] << " gave " << zs[i];
}

// Every bf16 extends exactly; f32 rounds to nearest even, NaN stays NaN.
TEST_P(MathTest, Bf16Conversions) {
  std::string text;
  for (const char *shape : {"3x16", "48x1"}) {
    std::string s = shape;
    text += kernelText(
        "extend_" + s,
        "%x: memref<?x" + s + "xbf16>, %y: memref<?x" + s + "xf32>", "rw",
        "%c0 = arith.constant 0 : index\n"
        "%a = tile.load %x[%block, %c0, %c0] along [1, 2] : "
        "memref<?x" +
            s + "xbf16>, vector<" + s +
            "xbf16>\n"
            "%b = arith.extf %a : vector<" +
            s + "xbf16> to vector<" + s +
            "xf32>\n"
            "tile.store %b, %y[%block, %c0, %c0] along [1, 2] : "
            "vector<" +
            s + "xf32>, memref<?x" + s + "xf32>");
    text += kernelText(
        "round_" + s,
        "%x: memref<?x" + s + "xf32>, %y: memref<?x" + s + "xbf16>", "rw",
        "%c0 = arith.constant 0 : index\n"
        "%a = tile.load %x[%block, %c0, %c0] along [1, 2] : "
        "memref<?x" +
            s + "xf32>, vector<" + s +
            "xf32>\n"
            "%b = arith.truncf %a : vector<" +
            s + "xf32> to vector<" + s +
            "xbf16>\n"
            "tile.store %b, %y[%block, %c0, %c0] along [1, 2] : "
            "vector<" +
            s + "xbf16>, memref<?x" + s + "xbf16>");
  }
  Kernels kernels(text, target);
  for (std::string shape : {"3x16", "48x1"}) {
    std::vector<uint16_t> halves(65568);
    for (size_t i = 0; i < halves.size(); ++i)
      halves[i] = static_cast<uint16_t>(i);
    std::vector<float> wide(halves.size());
    kernels.run("extend_" + shape, {halves.data(), wide.data()},
                halves.size() / 48);
    for (size_t i = 0; i < halves.size(); ++i) {
      float expected = fromBf16(halves[i]);
      ASSERT_EQ(std::memcmp(&wide[i], &expected, 4), 0) << i;
    }
    std::vector<float> xs;
    for (uint32_t high = 0; high < 0x10000; high += 3)
      for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
        // The instruction takes denormals for zeros.
        if ((high & 0x7f80) == 0 && ((high & 0x7f) | low) != 0)
          continue;
        uint32_t bits = high << 16 | low;
        float x;
        std::memcpy(&x, &bits, 4);
        xs.push_back(x);
      }
    xs.resize((xs.size() + 47) / 48 * 48, 1.0f);
    std::vector<uint16_t> rounded(xs.size());
    kernels.run("round_" + shape, {xs.data(), rounded.data()}, xs.size() / 48);
    for (size_t i = 0; i < xs.size(); ++i) {
      if (std::isnan(xs[i]))
        ASSERT_TRUE(std::isnan(fromBf16(rounded[i]))) << xs[i];
      else
        ASSERT_EQ(rounded[i], toBf16(xs[i])) << xs[i];
    }
  }
}

TESSERA_FOR_EACH_CPU_TARGET(MathTest);

} // namespace
} // namespace tessera::cpu::test
