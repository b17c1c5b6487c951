#include "compiler/target/cuda/Cubin.h"
#include "compiler/target/cuda/ExternalCompiler.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Object/ELF.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"

namespace tessera::cuda {

static llvm::Error failure(const llvm::Twine &message) {
  return llvm::createStringError(message);
}

std::string findNvcc() {
  using llvm::sys::Process;
  if (auto named = Process::GetEnv("CUDACXX"); named) {
    auto found = llvm::sys::findProgramByName(*named);
    return found ? *found
                 : *named; // empty: none; a wrong path is an error of its user
  }
  if (auto found = llvm::sys::findProgramByName("nvcc"))
    return *found;
  std::string home = Process::GetEnv("CUDA_HOME").value_or("/usr/local/cuda");
  std::string path = home + "/bin/nvcc";
  return llvm::sys::fs::can_execute(path) ? path : "";
}

// The number before `unit` in "…, 24 bytes spill stores, …".
static int64_t numberBefore(llvm::StringRef line, llvm::StringRef unit) {
  llvm::StringRef before = line.split(unit).first.rtrim();
  if (before.size() == line.size())
    return 0;
  size_t start = before.find_last_not_of("0123456789");
  int64_t number = 0;
  before.drop_front(start == llvm::StringRef::npos ? 0 : start + 1)
      .getAsInteger(10, number);
  return number;
}

// A kernel's name without the prefix that TESSERA_KERNEL adds.
static llvm::StringRef kernelOf(llvm::StringRef symbol) {
  symbol.consume_front("tessera_");
  return symbol;
}

std::vector<KernelResources> readResources(llvm::StringRef log) {
  std::vector<KernelResources> kernels;
  llvm::SmallVector<llvm::StringRef> lines;
  log.split(lines, '\n');
  for (llvm::StringRef line : lines) {
    if (line.contains("Compiling entry function"))
      kernels.emplace_back().name =
          kernelOf(line.split('\'').second.split('\'').first);
    if (kernels.empty())
      continue;
    KernelResources &kernel = kernels.back();
    if (line.contains("spill stores")) {
      kernel.stackBytes = numberBefore(line, " bytes stack frame");
      kernel.spillBytes = numberBefore(line, " bytes spill stores") +
                          numberBefore(line, " bytes spill loads");
    }
    if (line.contains("Used ")) {
      kernel.registers = numberBefore(line, " registers");
      kernel.sharedBytes = numberBefore(line, " bytes smem");
    }
  }
  return kernels;
}

llvm::Error countTensorInstructions(Cubin &cubin) {
  constexpr uint16_t kOpcode = 0xfff, kHmma = 0x23c;
  // HGMMA and, for fp8, QGMMA, with A from shared memory or from registers.
  constexpr uint16_t kHgmma[] = {0x9f0, 0xdf0, 0x9f3, 0xdf3};
  constexpr size_t kInstruction = 16;
  auto file = llvm::object::ELFFile<llvm::object::ELF64LE>::create(cubin.bytes);
  if (!file)
    return file.takeError();
  auto sections = file->sections();
  if (!sections)
    return sections.takeError();
  for (const auto &section : *sections) {
    auto name = file->getSectionName(section);
    if (!name)
      return name.takeError();
    if (!name->consume_front(".text."))
      continue;
    auto kernel = llvm::find_if(cubin.kernels, [&](const KernelResources &k) {
      return k.name == kernelOf(*name);
    });
    auto code = file->getSectionContents(section);
    if (!code)
      return code.takeError();
    if (kernel == cubin.kernels.end())
      continue;
    for (size_t at = 0; at + kInstruction <= code->size(); at += kInstruction) {
      uint16_t opcode =
          llvm::support::endian::read16le(code->data() + at) & kOpcode;
      kernel->hmma += opcode == kHmma;
      kernel->hgmma += llvm::is_contained(kHgmma, opcode);
    }
  }
  return llvm::Error::success();
}

std::string findGateFailure(const Cubin &cubin, llvm::StringRef log) {
  for (const KernelResources &kernel : cubin.kernels)
    if (kernel.spillBytes)
      return "kernel " + kernel.name + " spills " +
             std::to_string(kernel.spillBytes) + " bytes of registers";
  llvm::SmallVector<llvm::StringRef> lines;
  log.split(lines, '\n');
  for (llvm::StringRef line : lines) {
    if (line.contains("C751"))
      return "ptxas serializes: " + line.trim().str();
    if (line.contains("C7508"))
      return "ptxas ignores setmaxnreg: " + line.trim().str();
  }
  return "";
}

char GateFailure::ID = 0;

llvm::Expected<Cubin> compileCubin(llvm::StringRef text, llvm::StringRef arch) {
  std::string nvcc = findNvcc();
  if (nvcc.empty())
    return failure("device code needs nvcc, which is neither on the path nor "
                   "in /usr/local/cuda; install the CUDA toolkit or set "
                   "CUDACXX");
  std::string architecture = ("-arch=" + arch).str();
  // -fmad=false: multiply-adds are where the text says so. Otherwise nvcc fuses
  // some in one kernel and others in the next, so that a row that both compute
  // has other bits. It also keeps ptxas and the driver from doing it.
  llvm::SmallVector<llvm::StringRef> arguments{
      "-std=c++20", architecture, "-fmad=false", "-cubin", "-Xptxas", "-v"};
  // ptxas may spill a word to save registers for more blocks at a time. Without
  // that option, a kernel that still spills lacks registers.
  for (bool isFirst : {true, false}) {
    if (!isFirst)
      arguments.append({"-Xptxas", "--register-usage-level=0"});
    auto output = runCompiler({nvcc, "kernels.cu", "kernels.cubin", arguments,
                               /*kept=*/"kernels.ptx"},
                              text);
    if (!output)
      return output.takeError();
    Cubin cubin{std::move(output->bytes), std::move(output->kept),
                readResources(output->log)};
    std::string reason = findGateFailure(cubin, output->log);
    if (!reason.empty() && isFirst)
      continue;
    if (!reason.empty())
      return llvm::make_error<GateFailure>(arch + ": " + reason,
                                           llvm::inconvertibleErrorCode());
    if (llvm::Error error = countTensorInstructions(cubin))
      return std::move(error);
    return cubin;
  }
  llvm_unreachable("the second iteration returns");
}

} // namespace tessera::cuda
