// Tile ops against plain loops, on every CPU target: loads and stores of any
// step and raggedness, products, reductions, broadcasts, staged copies.
#include "test/compiler/target/cpu/KernelRunner.h"
#include <cmath>
#include <numeric>

namespace tessera::cpu::test {
namespace {

using TileTest = TargetTest;

std::string str(int64_t value) { return std::to_string(value); }
std::string memref(int64_t m, int64_t n, const std::string &type) {
  return "memref<" + str(m) + "x" + str(n) + "x" + type + ">";
}
std::string vec(int64_t m, int64_t n, const std::string &type) {
  return "vector<" + str(m) + "x" + str(n) + "x" + type + ">";
}

std::vector<uint16_t> asBf16(const std::vector<float> &values) {
  std::vector<uint16_t> bits;
  for (float value : values)
    bits.push_back(toBf16(value));
  return bits;
}

// Loads [m, n] straight or transposed, stores it straight or transposed, for
// widths around a register; what lies outside stays untouched.
TEST_P(TileTest, MovesTilesOfAnyShape) {
  struct Case {
    int64_t m, n;
  };
  for (const char *type : {"f32", "bf16", "i64", "i8"})
    for (Case c : {Case{1, 1},
                   {1, 5},
                   {3, 16},
                   {16, 16},
                   {17, 33},
                   {5, 1},
                   {2, 48},
                   {33, 7},
                   {8, 8},
                   {3, 4},
                   {4, 12},
                   {5, 24}}) {
      std::string text;
      for (int variant = 0; variant < 4; ++variant) {
        bool turnLoad = variant & 1, turnStore = variant & 2;
        // source is 40×50, the tile starts at (2, 1)
        std::string tile = turnLoad ? vec(c.n, c.m, type) : vec(c.m, c.n, type);
        std::string body =
            "%c1 = arith.constant 1 : index\n%c2 = arith.constant 2 : index\n"
            "%t = tile.load %x[%c2, %c1] along " +
            std::string(turnLoad ? "[1, 0]" : "[0, 1]") + " : " +
            memref(40, 50, type) + ", " + tile + "\n";
        body += "tile.store %t, %y[%c2, %c1] along " +
                std::string(turnStore ? "[1, 0]" : "[0, 1]") + " : " + tile +
                ", " + memref(50, 50, type);
        text += kernelText("move" + str(variant),
                           "%x: " + memref(40, 50, type) +
                               ", %y: " + memref(50, 50, type),
                           "rw", body);
      }
      Kernels kernels(text, target);
      size_t bytes = std::string(type) == "f32"    ? 4
                     : std::string(type) == "bf16" ? 2
                     : std::string(type) == "i64"  ? 8
                                                   : 1;
      std::vector<uint8_t> x(40 * 50 * bytes);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<uint8_t>(i * 37 + i / 251);
      for (int variant = 0; variant < 4; ++variant) {
        bool turned = bool(variant & 1) != bool(variant & 2);
        std::vector<uint8_t> y(50 * 50 * bytes, 0xee), expected = y;
        for (int64_t i = 0; i < c.m; ++i)
          for (int64_t j = 0; j < c.n; ++j)
            for (size_t k = 0; k < bytes; ++k)
              expected[((turned ? j + 2 : i + 2) * 50 +
                        (turned ? i + 1 : j + 1)) *
                           bytes +
                       k] = x[((i + 2) * 50 + j + 1) * bytes + k];
        kernels.run("move" + str(variant), {x.data(), y.data()}, 1);
        ASSERT_EQ(y, expected)
            << type << " " << c.m << "x" << c.n << " variant " << variant;
      }
    }
}

// A view with an offset, no contiguous dimension, and one that is stepped over.
TEST_P(TileTest, ReadsStridedViews) {
  Kernels kernels(
      kernelText("view", "%x: memref<400xf32>, %y: memref<4x20xf32>", "rw", R"(
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %v = memref.reinterpret_cast %x to offset: [7], sizes: [4, 2, 20], strides: [61, 5, 3]
      : memref<400xf32> to memref<4x2x20xf32, strided<[61, 5, 3], offset: 7>>
    %a = tile.load %v[%c0, %c1, %c0] along [0, 2] : memref<4x2x20xf32, strided<[61, 5, 3], offset: 7>>, vector<4x20xf32>
    tile.store %a, %y[%c0, %c0] along [0, 1] : vector<4x20xf32>, memref<4x20xf32>)"),
      target);
  std::vector<float> x(400), y(80);
  std::iota(x.begin(), x.end(), 0.0f);
  kernels.run("view", {x.data(), y.data()}, 1);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 20; ++j)
      ASSERT_EQ(y[i * 20 + j], x[12 + 61 * i + 3 * j]);
}

// A flat kernel over a dynamic size: the last block is bounded.
TEST_P(TileTest, BoundsWhatIsDynamic) {
  std::string text;
  for (std::string type : {"f32", "bf16"})
    text += kernelText("flat_" + type,
                       "%n: index, %x: memref<?x" + type + ">, %y: memref<?x" +
                           type + ">",
                       "rw",
                       R"(
    %c40 = arith.constant 40 : index
    %i = arith.muli %block, %c40 : index
    %left = arith.subi %n, %i : index
    %t = tile.load %x[%i] along [0] bound %left : memref<?x)" +
                           type + ">, vector<40x" + type + R"(>
    tile.store %t, %y[%i] along [0] bound %left : vector<40x)" +
                           type + ">, memref<?x" + type + ">",
                       1);
  Kernels kernels(text, target);
  for (int64_t n : {1, 15, 16, 39, 40, 41, 79, 100}) {
    std::vector<float> x = randomFloats(200, 1), y(200, 7.0f);
    kernels.run("flat_f32", {x.data(), y.data()}, (n + 39) / 40, {n});
    std::vector<uint16_t> h = asBf16(x), k(200, 7);
    kernels.run("flat_bf16", {h.data(), k.data()}, (n + 39) / 40, {n});
    for (int64_t i = 0; i < 200; ++i) {
      ASSERT_EQ(y[i], i < n ? x[i] : 7.0f) << n << " " << i;
      ASSERT_EQ(k[i], i < n ? h[i] : 7) << n << " " << i;
    }
  }
}

// Blocks may be handed out in any cut.
TEST_P(TileTest, BlocksAreIndependent) {
  Kernels kernels(kernelText("twice", "%x: memref<10x16xf32>", "x", R"(
    %c0 = arith.constant 0 : index
    %a = tile.load %x[%block, %c0] along [1] : memref<10x16xf32>, vector<16xf32>
    %b = arith.addf %a, %a : vector<16xf32>
    tile.store %b, %x[%block, %c0] along [1] : vector<16xf32>, memref<10x16xf32>)"),
                  target);
  std::vector<float> x(160, 1.0f);
  kernels.run("twice", {x.data()}, 7, {}, 3);
  kernels.run("twice", {x.data()}, 3, {}, 3);
  for (int i = 0; i < 160; ++i)
    ASSERT_EQ(x[i], i >= 48 && i < 112 ? 2.0f : 1.0f);
}

TEST_P(TileTest, Reduces) {
  for (auto [m, n] : {std::pair{4, 16}, {1, 7}, {17, 33}, {3, 1}, {20, 64}})
    for (const char *kind : {"sum", "max", "min"}) {
      Kernels kernels(
          kernelText(
              "reduce",
              "%x: " + memref(m, n, "f32") + ", %r: memref<" + str(m) +
                  "xf32>, %c: memref<" + str(n) + "xf32>, %s: memref<1xf32>",
              "rwww",
              "%c0 = arith.constant 0 : index\n%t = tile.load %x[%c0, %c0] "
              "along [0, 1] : " +
                  memref(m, n, "f32") + ", " + vec(m, n, "f32") +
                  "\n%a = tile.reduce " + kind +
                  " %t dim 1 : " + vec(m, n, "f32") + " -> vector<" + str(m) +
                  "xf32>\ntile.store %a, %r[%c0] along [0] : vector<" + str(m) +
                  "xf32>, memref<" + str(m) + "xf32>\n%b = tile.reduce " +
                  kind + " %t dim 0 : " + vec(m, n, "f32") + " -> vector<" +
                  str(n) + "xf32>\ntile.store %b, %c[%c0] along [0] : vector<" +
                  str(n) + "xf32>, memref<" + str(n) +
                  "xf32>\n%d = tile.reduce " + kind + " %a dim 0 : vector<" +
                  str(m) +
                  "xf32> -> vector<f32>\n%e = vector.extractelement %d[] : "
                  "vector<f32>\nmemref.store %e, %s[%c0] : memref<1xf32>"),
          target);
      std::vector<float> x = randomFloats(m * n, m), rows(m), columns(n),
                         all(1);
      kernels.run("reduce", {x.data(), rows.data(), columns.data(), all.data()},
                  1);
      auto fold = [&](double a, double b) {
        return *kind == 's'     ? a + b
               : kind[1] == 'a' ? std::max(a, b)
                                : std::min(a, b);
      };
      std::vector<double> byRow(m), byColumn(n);
      double total = 0;
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
          double v = x[i * n + j];
          byRow[i] = j ? fold(byRow[i], v) : v;
          byColumn[j] = i ? fold(byColumn[j], v) : v;
          total = i || j ? fold(total, v) : v;
        }
      for (int i = 0; i < m; ++i)
        ASSERT_NEAR(rows[i], byRow[i], 1e-5) << kind << m << n;
      for (int j = 0; j < n; ++j)
        ASSERT_NEAR(columns[j], byColumn[j], 1e-5) << kind << m << n;
      ASSERT_NEAR(all[0], total, 1e-4);
    }
}

TEST_P(TileTest, MaximaKeepNan) {
  Kernels kernels(
      kernelText("peak", "%x: memref<20xf32>, %y: memref<1xf32>", "rw", R"(
    %c0 = arith.constant 0 : index
    %t = tile.load %x[%c0] along [0] : memref<20xf32>, vector<20xf32>
    %m = tile.reduce max %t dim 0 : vector<20xf32> -> vector<f32>
    %e = vector.extractelement %m[] : vector<f32>
    memref.store %e, %y[%c0] : memref<1xf32>)"),
      target);
  for (int at = 0; at < 20; ++at) {
    std::vector<float> x(20, 1.0f), y(1);
    x[at] = std::nanf("");
    kernels.run("peak", {x.data(), y.data()}, 1);
    ASSERT_TRUE(std::isnan(y[0])) << at;
  }
}

// outer[i, j] = r[i] - c[j] + start + j, with every form of broadcast.
TEST_P(TileTest, BroadcastsAndCounts) {
  for (auto [m, n] : {std::pair{3, 20}, {16, 16}, {18, 1}, {1, 9}}) {
    std::string tile = vec(m, n, "f32");
    Kernels kernels(
        kernelText(
            "outer",
            "%r: memref<" + str(m) + "xf32>, %c: memref<" + str(n) +
                "xf32>, %y: " + memref(m, n, "f32"),
            "rrw",
            "%c0 = arith.constant 0 : index\n%c5 = arith.constant 5 : index\n"
            "%a = tile.load %r[%c0] along [0] : memref<" +
                str(m) + "xf32>, vector<" + str(m) +
                "xf32>\n%b = tile.load %c[%c0] along [0] : memref<" + str(n) +
                "xf32>, vector<" + str(n) +
                "xf32>\n%u = tile.broadcast %a dims [0] : vector<" + str(m) +
                "xf32> -> " + tile +
                "\n%v = tile.broadcast %b dims [1] : vector<" + str(n) +
                "xf32> -> " + tile + "\n%w = arith.subf %u, %v : " + tile +
                "\n%i = tile.iota %c5 dim 1 : " + vec(m, n, "i32") +
                "\n%k = tile.iota %c0 dim 0 : " + vec(m, n, "i32") +
                "\n%l = arith.addi %i, %k : " + vec(m, n, "i32") +
                "\n%j = arith.sitofp %l : " + vec(m, n, "i32") + " to " + tile +
                "\n%h = arith.constant 0.5 : f32\n%g = tile.broadcast %h dims "
                "[] : f32 -> " +
                tile + "\n%o = arith.mulf %j, %g : " + tile +
                "\n%z = arith.addf %w, %o : " + tile +
                "\ntile.store %z, %y[%c0, %c0] along [0, 1] : " + tile + ", " +
                memref(m, n, "f32")),
        target);
    std::vector<float> r = randomFloats(m, 1), c = randomFloats(n, 2), y(m * n);
    kernels.run("outer", {r.data(), c.data(), y.data()}, 1);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j)
        ASSERT_EQ(y[i * n + j], (r[i] - c[j]) + float(5 + j + i) * 0.5f);
  }
}

TEST_P(TileTest, Transposes) {
  for (auto [m, n] : {std::pair{16, 16}, {5, 40}, {33, 2}, {1, 20}, {20, 1}}) {
    Kernels kernels(
        kernelText(
            "turn",
            "%x: " + memref(m, n, "f32") + ", %y: " + memref(n, m, "f32"), "rw",
            "%c0 = arith.constant 0 : index\n%t = tile.load %x[%c0, "
            "%c0] along [0, 1] : " +
                memref(m, n, "f32") + ", " + vec(m, n, "f32") +
                "\n%u = tile.transpose %t : " + vec(m, n, "f32") + " -> " +
                vec(n, m, "f32") +
                "\ntile.store %u, %y[%c0, %c0] along [0, 1] : " +
                vec(n, m, "f32") + ", " + memref(n, m, "f32")),
        target);
    std::vector<float> x = randomFloats(m * n, 3), y(m * n);
    kernels.run("turn", {x.data(), y.data()}, 1);
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j)
        ASSERT_EQ(y[j * m + i], x[i * n + j]) << m << "x" << n;
  }
}

// A tile carried by a loop, branches on the induction value, i1 in memory.
TEST_P(TileTest, LoopsCarryTiles) {
  Kernels kernels(
      kernelText("sum",
                 "%x: memref<9x20xf32>, %m: memref<20xi1>, %y: memref<20xf32>",
                 "rrw", R"(
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c9 = arith.constant 9 : index
    %zero = arith.constant dense<0.0> : vector<20xf32>
    %mask = tile.load %m[%c0] along [0] : memref<20xi1>, vector<20xi1>
    %s = scf.for %i = %c0 to %c9 step %c1 iter_args(%acc = %zero) -> (vector<20xf32>) {
      %t = tile.load %x[%i, %c0] along [1] : memref<9x20xf32>, vector<20xf32>
      %first = arith.cmpi ult, %i, %c4 : index
      %next = scf.if %first -> (vector<20xf32>) {
        %a = arith.addf %acc, %t : vector<20xf32>
        scf.yield %a : vector<20xf32>
      } else {
        %b = arith.select %mask, %t, %zero : vector<20xi1>, vector<20xf32>
        %c = arith.subf %acc, %b : vector<20xf32>
        scf.yield %c : vector<20xf32>
      }
      scf.yield %next : vector<20xf32>
    }
    tile.store %s, %y[%c0] along [0] : vector<20xf32>, memref<20xf32>)"),
      target);
  std::vector<float> x = randomFloats(180, 4), y(20);
  std::vector<uint8_t> mask(20);
  for (int j = 0; j < 20; ++j)
    mask[j] = j % 3 == 0;
  kernels.run("sum", {x.data(), mask.data(), y.data()}, 1);
  for (int j = 0; j < 20; ++j) {
    float sum = 0;
    for (int i = 0; i < 9; ++i)
      sum = i < 4 ? sum + x[i * 20 + j] : sum - (mask[j] ? x[i * 20 + j] : 0);
    ASSERT_EQ(y[j], sum);
  }
}

TESSERA_FOR_EACH_CPU_TARGET(TileTest);

//===--- products and staged copies ---------------------------------------===//

struct Product {
  int64_t m, n, k;
};

class ProductTest : public TargetTest {
protected:
  /// Multiplies A [m, k] and B ([k, n], or [n, k] where `turned`), B staged by
  /// a copy into shared memory of the given layout.
  void check(Product p, const std::string &type, bool turned,
             const std::string &layout) {
    std::string a = memref(p.m, p.k, type),
                b = turned ? memref(p.n, p.k, type) : memref(p.k, p.n, type),
                c = memref(p.m, p.n, "f32");
    int64_t depth = (p.k + 1) / 2 * 2;
    std::string shared = "memref<" + str(depth) + "x" + str(p.n) + "x" + type +
                         ", " + layout + ">";
    std::string text = kernelText(
        "product", "%a: " + a + ", %b: " + b + ", %c: " + c, "rrw",
        "%c0 = arith.constant 0 : index\n%s = tile.alloc : " + shared +
            "\ntile.copy %b[%c0, %c0] along " + (turned ? "[1, 0]" : "[0, 1]") +
            " to %s[%c0, %c0] along [0, 1] shape [" + str(p.k) + ", " +
            str(p.n) + "] : " + b + " to " + shared +
            "\ntile.commit\ntile.wait 0\n"
            "%x = tile.load %a[%c0, %c0] along [0, 1] : " +
            a + ", " + vec(p.m, p.k, type) +
            "\n%y = tile.load %s[%c0, %c0] along [0, 1] : " + shared + ", " +
            vec(p.k, p.n, type) +
            "\n%z = arith.constant dense<1.0> : " + vec(p.m, p.n, "f32") +
            "\n%r = tile.mma %x, %y, %z : " + vec(p.m, p.k, type) + ", " +
            vec(p.k, p.n, type) + ", " + vec(p.m, p.n, "f32") +
            "\ntile.store %r, %c[%c0, %c0] along [0, 1] : " +
            vec(p.m, p.n, "f32") + ", " + c);
    Kernels kernels(text, target);
    std::vector<float> left = randomFloats(p.m * p.k, 1),
                       right = randomFloats(p.k * p.n, 2), out(p.m * p.n);
    std::vector<uint16_t> left16 = asBf16(left), right16 = asBf16(right);
    bool isBf16 = type == "bf16";
    if (isBf16) {
      for (size_t i = 0; i < left.size(); ++i)
        left[i] = fromBf16(left16[i]);
      for (size_t i = 0; i < right.size(); ++i)
        right[i] = fromBf16(right16[i]);
      kernels.run("product", {left16.data(), right16.data(), out.data()}, 1);
    } else {
      kernels.run("product", {left.data(), right.data(), out.data()}, 1);
    }
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 1;
        for (int64_t k = 0; k < p.k; ++k)
          sum += double(left[i * p.k + k]) *
                 right[turned ? j * p.k + k : k * p.n + j];
        ASSERT_NEAR(out[i * p.n + j], sum, 1e-5 * p.k)
            << type << " " << layout << " " << p.m << "x" << p.n << "x" << p.k
            << (turned ? " turned" : "");
      }
  }
};

TEST_P(ProductTest, StagedOperands) {
  for (Product p : {Product{1, 16, 4},
                    {3, 32, 7},
                    {4, 33, 64},
                    {2, 5, 33},
                    {1, 48, 131},
                    {2, 16, 70}})
    for (bool turned : {false, true}) {
      check(p, "f32", turned, "#tile.shared");
      check(p, "bf16", turned, "#tile.shared");
      check(p, "bf16", turned, "#tile.shared<pairs>");
    }
}

TEST_P(ProductTest, OneColumn) {
  check({4, 1, 10}, "f32", false, "#tile.shared");
  check({4, 1, 10}, "bf16", true, "#tile.shared");
  check({4, 1, 11}, "bf16", true, "#tile.shared<pairs>");
}

TESSERA_FOR_EACH_CPU_TARGET(ProductTest);

} // namespace
} // namespace tessera::cpu::test
