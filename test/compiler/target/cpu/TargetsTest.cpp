// What sets each CPU target apart: its code has the instruction that the target
// is for, and its features can be detected. Kernels are compiled and
// disassembled, not run, so that every processor tests every target.
#include "compiler/target/cpu/CpuTarget.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/Parser/Parser.h"
#include "runtime/support/CpuFeatures.h"
#include "test/compiler/target/cpu/KernelRunner.h"
#include "llvm-c/Disassembler.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include <algorithm>
#include <gmock/gmock.h>

namespace tessera::cpu::test {
namespace {

/// An instruction, and the registers of its operands.
struct Row {
  const char *target, *instruction, *on;
};

constexpr Row kRows[] = {
    {.target = "cpu:amx", .instruction = "tdpbf16ps", .on = "%tmm"},
    {.target = "cpu:avx512bf16", .instruction = "vdpbf16ps", .on = "%zmm"},
    {.target = "cpu:avx512", .instruction = "vpdpbusd", .on = "%zmm"},
    {.target = "cpu:avx2", .instruction = "vpmaddwd", .on = "%ymm"},
};

// A product of words of four bytes, and one of bf16.
std::string products() {
  auto product = [](const std::string &name, const std::string &element,
                    const std::string &sum) {
    auto buffer = [](const std::string &type) {
      return "memref<" + type + ">";
    };
    auto tile = [](const std::string &type) { return "vector<" + type + ">"; };
    std::string a = "2x2x" + element, b = "2x16x" + element, c = "2x16x" + sum,
                body = "%c0 = arith.constant 0 : index\n";
    for (auto [load, type] : {std::pair("x", a), {"y", b}})
      body += std::string("%") + load + " = tile.load %" + load +
              "_[%c0, %c0] along [0, 1] : " + buffer(type) + ", " + tile(type) +
              "\n";
    body += "%z = tile.load %z_[%c0, %c0] along [0, 1] : " + buffer(c) + ", " +
            tile(c) + "\n%r = tile.mma %x, %y, %z : " + tile(a) + ", " +
            tile(b) + ", " + tile(c) +
            "\ntile.store %r, %z_[%c0, %c0] along [0, 1] : " + tile(c) + ", " +
            buffer(c);
    return kernelText(name,
                      "%x_: " + buffer(a) + ", %y_: " + buffer(b) +
                          ", %z_: " + buffer(c),
                      "rrx", body);
  };
  return product("bytes", "i32", "i32") + product("floats", "bf16", "f32");
}

// A product of bf16 in matrix registers.
std::string stagedProduct() {
  return kernelText("staged", "%again: memref<1xi1>", "r", R"(
    %c0 = arith.constant 0 : index
    %depth = arith.constant 64 : index
    %keep = memref.load %again[%c0] : memref<1xi1>
    %a = tile.alloc : memref<32x96xbf16, #tile.shared<rows>>
    %b = tile.alloc : memref<64x32xbf16, #tile.shared<pairs>>
    %s = tile.alloc : memref<32x32xf32, #tile.shared<rows>>
    tile.mma_staged %a[%c0, %c0], %b[%c0, %c0] onto %s[%c0, %c0] keep %keep depth %depth shape [32, 32]
        : memref<32x96xbf16, #tile.shared<rows>>, memref<64x32xbf16, #tile.shared<pairs>>, memref<32x32xf32, #tile.shared<rows>>)");
}

std::string compiled(const TileTarget &target) {
  mlir::DialectRegistry registry;
  registerCpuTarget(registry);
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(
      products() + (target.matrixTiles ? stagedProduct() : ""), &context);
  if (!module) {
    ADD_FAILURE() << "kernel text does not parse";
    return "";
  }
  auto objects = compileKernels({{*module, target}}, {});
  if (!objects) {
    ADD_FAILURE() << llvm::toString(objects.takeError());
    return "";
  }
  return std::move(objects->front().elf);
}

// The instructions of a shared object, one a line.
std::string disassembled(const std::string &elf) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetDisassembler();
  auto file = llvm::object::ObjectFile::createObjectFile(
      llvm::MemoryBufferRef(elf, "kernels"));
  if (!file) {
    ADD_FAILURE() << llvm::toString(file.takeError());
    return "";
  }
  LLVMDisasmContextRef disassembler = LLVMCreateDisasm(
      "x86_64-unknown-linux-gnu", nullptr, 0, nullptr, nullptr);
  std::string text;
  for (const llvm::object::SectionRef &section : (*file)->sections()) {
    if (!section.isText())
      continue;
    llvm::StringRef code = llvm::cantFail(section.getContents());
    while (!code.empty()) {
      char line[128];
      size_t size = LLVMDisasmInstruction(
          disassembler,
          reinterpret_cast<uint8_t *>(const_cast<char *>(code.data())),
          code.size(), 0, line, sizeof line);
      if (size)
        text += std::string(line) + "\n";
      code = code.drop_front(std::max<size_t>(size, 1));
    }
  }
  LLVMDisasmDispose(disassembler);
  return text;
}

} // namespace

TEST(Targets, HaveTheirInstructions) {
  for (const TileTarget &target : cpuTileTargets()) {
    const Row *row = std::ranges::find_if(
        kRows, [&](const Row &each) { return each.target == target.name; });
    ASSERT_NE(row, std::end(kRows))
        << target.name << " has no row in this test";
    EXPECT_THAT(disassembled(compiled(target)),
                ::testing::ContainsRegex(std::string(row->instruction) +
                                         "[^\n]*" + row->on))
        << target.name;
  }
}

TEST(Targets, NeedFeaturesThatAreDetected) {
  const std::vector<std::string_view> &known = CpuFeatures::knownNames();
  for (const TileTarget &target : cpuTileTargets()) {
    EXPECT_FALSE(target.features.empty()) << target.name;
    for (const std::string &feature : target.features)
      EXPECT_NE(std::ranges::find(known, feature), known.end())
          << target.name << " requires " << feature
          << ", which runtime/support/CpuFeatures.cpp does not detect";
  }
}

} // namespace tessera::cpu::test
