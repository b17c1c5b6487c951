// Elementary functions of f64 against libm in extended precision, in units of
// the last place, over ranges, at edges and at denormals.
#include "test/compiler/target/cpu/KernelRunner.h"
#include <cmath>
#include <functional>
#include <limits>

namespace tessera::cpu::test {
namespace {

using Wide = long double;
static_assert(std::numeric_limits<Wide>::digits >= 64,
              "the reference must know more digits than f64 has");

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Function {
  std::string name; // of a math op
  std::function<Wide(Wide)> reference;
  double low, high;            // where every result is checked
  std::vector<double> special; // further arguments
};

const std::vector<Function> &functions() {
  static const std::vector<Function> list = {
      {"exp",
       [](Wide x) { return std::exp(x); },
       -746,
       710,
       {0.0, -0.0, kInf, -kInf, kNan, -1e6, 1e6, 709.78, -745.1}},
      {"exp2",
       [](Wide x) { return std::exp2(x); },
       -1076,
       1025,
       {0.0, 1023.999, -1074.0, kInf, -kInf, kNan}},
      {"expm1",
       [](Wide x) { return std::expm1(x); },
       -45,
       709,
       {0.0, 1e-300, -1e-10, kInf, -kInf, kNan}},
      {"log",
       [](Wide x) { return std::log(x); },
       0,
       100,
       {0.0, -0.0, -1.0, 1.0, 5e-324, 1e-310, 1e308, kInf, kNan}},
      {"log2",
       [](Wide x) { return std::log2(x); },
       0,
       4,
       {0.0, -1.0, 1.0, 2.0, 5e-324, 1e308, kInf, kNan}},
      {"log10",
       [](Wide x) { return std::log10(x); },
       0,
       1e6,
       {0.0, -1.0, 1.0, 5e-324, kInf, kNan}},
      {"log1p",
       [](Wide x) { return std::log1p(x); },
       -1,
       10,
       {0.0, 1e-300, -1e-10, -1.0, -2.0, 1e308, kInf, kNan}},
      {"tanh",
       [](Wide x) { return std::tanh(x); },
       -25,
       25,
       {0.0, 1e-300, -1e-5, 100.0, kInf, -kInf, kNan}},
      {"erf",
       [](Wide x) { return std::erf(x); },
       -7,
       7,
       {0.0, 1e-300, -1e-5, 0.9, 100.0, kInf, -kInf, kNan}},
      {"sin", [](Wide x) { return std::sin(x); }, -3000, 3000, {0.0, kNan}},
      {"cos", [](Wide x) { return std::cos(x); }, -3000, 3000, {0.0, kNan}},
      {"rsqrt",
       [](Wide x) { return 1 / std::sqrt(x); },
       0,
       1000,
       {0.0, 5e-324, -1.0, kInf, kNan}},
  };
  return list;
}

// Distance in units of the last place of the exact value as f64.
double ulps(double got, Wide exact) {
  if (std::isnan(exact))
    return std::isnan(got) ? 0 : kInf;
  auto rounded = static_cast<double>(exact);
  if (std::isinf(rounded) || std::isinf(got))
    return got == rounded ? 0 : kInf;
  int exponent;
  std::frexp(exact, &exponent);
  Wide unit = std::ldexp(Wide(1), std::max(exponent - 53, -1074));
  return static_cast<double>(std::abs(got - exact) / unit);
}

std::vector<double> arguments(const Function &function) {
  std::vector<double> xs = function.special;
  constexpr int kSteps = 30000;
  for (int i = 0; i <= kSteps; ++i)
    xs.push_back(function.low + (function.high - function.low) * i / kSteps);
  for (int e = -1022; e < 8; e += e < -60 ? 31 : 1)
    for (double m : {1.0, 1.1, 1.3, 1.41421356, 1.6, 1.99})
      for (double sign : {-1.0, 1.0}) {
        double x = sign * std::ldexp(m, e);
        if (x >= function.low && x <= function.high)
          xs.push_back(x);
      }
  xs.resize((xs.size() + 15) / 16 * 16, 1.0);
  return xs;
}

using DoubleMathTest = TargetTest;

TEST_P(DoubleMathTest, FunctionsAreWithinEightUlp) {
  std::string text;
  for (const Function &function : functions())
    text += kernelText(function.name,
                       "%x: memref<?x16xf64>, %y: memref<?x16xf64>", "rw",
                       "%c0 = arith.constant 0 : index\n"
                       "%a = tile.load %x[%block, %c0] along [1] : "
                       "memref<?x16xf64>, vector<16xf64>\n%b = math." +
                           function.name +
                           " %a : vector<16xf64>\n"
                           "tile.store %b, %y[%block, %c0] along [1] : "
                           "vector<16xf64>, memref<?x16xf64>");
  Kernels kernels(text, target);
  for (const Function &function : functions()) {
    std::vector<double> xs = arguments(function), ys(xs.size());
    kernels.run(function.name, {xs.data(), ys.data()}, xs.size() / 16);
    double worst = 0, where = 0;
    for (size_t i = 0; i < xs.size(); ++i)
      if (double error = ulps(ys[i], function.reference(xs[i]));
          error > worst) {
        worst = error;
        where = xs[i];
      }
    EXPECT_LE(worst, 8.0) << function.name << " at " << where;
    RecordProperty(function.name, std::to_string(worst));
  }
}

TEST_P(DoubleMathTest, PowerIsAsExactAsItsExponent) {
  Kernels kernels(kernelText("power",
                             "%x: memref<?x8xf64>, %y: memref<?x8xf64>, %z: "
                             "memref<?x8xf64>",
                             "rrw", R"(
    %c0 = arith.constant 0 : index
    %a = tile.load %x[%block, %c0] along [1] : memref<?x8xf64>, vector<8xf64>
    %b = tile.load %y[%block, %c0] along [1] : memref<?x8xf64>, vector<8xf64>
    %c = math.powf %a, %b : vector<8xf64>
    tile.store %c, %z[%block, %c0] along [1] : vector<8xf64>, memref<?x8xf64>)"),
                  target);
  std::vector<double> xs, ys;
  for (double x : {0.0, 5e-324, 1e-300, 0.1, 0.9, 0.999, 1.0, 1.5, 2.0, 10.0,
                   500000.0, 1e300, kInf})
    for (double y :
         {-50.0, -10.5, -1.0, -0.5, 0.0, 1e-10, 0.5, 1.0, 2.0, 7.75, 50.0}) {
      xs.push_back(x);
      ys.push_back(y);
    }
  xs.resize((xs.size() + 7) / 8 * 8, 1.0);
  ys.resize(xs.size(), 1.0);
  std::vector<double> zs(xs.size());
  kernels.run("power", {xs.data(), ys.data(), zs.data()}, xs.size() / 8);
  for (size_t i = 0; i < xs.size(); ++i) {
    Wide exact = std::pow(Wide(xs[i]), Wide(ys[i]));
    Wide exponent = xs[i] > 0 && std::isfinite(xs[i])
                        ? std::abs(ys[i] * std::log(Wide(xs[i])))
                        : Wide(0);
    EXPECT_LE(ulps(zs[i], exact), 2 * (2 + static_cast<double>(exponent)))
        << xs[i] << " ^ " << ys[i] << " gave " << zs[i];
  }
}

TESSERA_FOR_EACH_CPU_TARGET(DoubleMathTest);

} // namespace
} // namespace tessera::cpu::test
