#include "compiler/target/cuda/HostCode.h"
#include "compiler/target/cuda/DeviceFiles.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

namespace tessera::cuda {

static llvm::Error failure(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

// The first line with "error" of a compiler's output, or its first line; with
// the line of `text` that it complains of.
static std::string firstComplaint(llvm::StringRef output,
                                  llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef> lines, source;
  output.split(lines, '\n');
  text.split(source, '\n');
  for (llvm::StringRef line : lines) {
    if (!line.contains("error"))
      continue;
    size_t number = 0;
    if (!line.split("kernels.cpp:").second.consumeInteger(10, number) &&
        number > 0 && number <= source.size())
      return (line + ": " + source[number - 1].trim()).str();
    return line.str();
  }
  return lines.front().str();
}

llvm::Expected<std::string> compileForHost(llvm::StringRef text) {
  std::string name = llvm::sys::Process::GetEnv("CXX").value_or("c++");
  auto compiler = llvm::sys::findProgramByName(name);
  if (!compiler)
    return failure("the emulated GPU's kernels need a C++ compiler, and there "
                   "is no " +
                   name + "; install one or set CXX");
  llvm::SmallString<128> directory;
  if (llvm::sys::fs::createUniqueDirectory("tessera-host", directory))
    return failure("no temporary directory can be made; set TMPDIR");
  auto cleanup = llvm::make_scope_exit(
      [&] { llvm::sys::fs::remove_directories(directory); });
  if (llvm::Error error = writeDeviceFiles(directory))
    return std::move(error);
  auto inside = [&](llvm::StringRef file) {
    llvm::SmallString<128> path(directory);
    llvm::sys::path::append(path, file);
    return path.str().str();
  };
  std::string source = inside("kernels.cpp"), object = inside("kernels.so"),
              log = inside("log");
  {
    std::error_code error;
    llvm::raw_fd_ostream out(source, error);
    out << text;
  }
  // -ffp-contract=off, so that an emulated kernel's bits do not depend on it.
  llvm::SmallVector<llvm::StringRef> arguments{
      *compiler, "-std=c++20", "-O1", "-ffp-contract=off",
      "-fPIC",   "-shared",    "-w",  "-I",
      directory, source,       "-o",  object};
  std::optional<llvm::StringRef> redirects[] = {std::nullopt, log, log};
  int status =
      llvm::sys::ExecuteAndWait(*compiler, arguments, std::nullopt, redirects);
  auto buffer = llvm::MemoryBuffer::getFile(status == 0 ? object : log);
  if (!buffer)
    return failure(*compiler + " could not be run");
  if (status != 0)
    return failure("the host compiler refuses generated kernels: " +
                   firstComplaint((*buffer)->getBuffer(), text));
  return (*buffer)->getBuffer().str();
}

} // namespace tessera::cuda
