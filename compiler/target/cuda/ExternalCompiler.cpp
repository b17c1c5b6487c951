#include "compiler/target/cuda/ExternalCompiler.h"
#include "compiler/target/cuda/DeviceFiles.h"
#include "runtime/support/CompilationCount.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

namespace tessera::cuda {

static llvm::Error failure(const llvm::Twine &message) {
  return llvm::createStringError(message);
}

// The number in "kernels.cu:12:" or "kernels.cu(12)"; 0 where there is none.
static size_t lineNumber(llvm::StringRef diagnostic, llvm::StringRef source) {
  size_t number = 0;
  llvm::StringRef rest = diagnostic.split(source).second;
  if (!rest.consume_front(":"))
    rest.consume_front("(");
  return rest.consumeInteger(10, number) ? 0 : number;
}

static std::string firstDiagnostic(llvm::StringRef log, llvm::StringRef text,
                                   llvm::StringRef source) {
  llvm::SmallVector<llvm::StringRef> lines, written;
  log.split(lines, '\n');
  text.split(written, '\n');
  for (llvm::StringRef line : lines) {
    if (!line.contains("error"))
      continue;
    size_t number = lineNumber(line, source);
    if (number == 0 || number > written.size())
      return line.str();
    return (line + ": " + written[number - 1].trim()).str();
  }
  return lines.front().str();
}

static std::string contentOf(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

llvm::Expected<CompilerOutput> runCompiler(const ExternalCompiler &compiler,
                                           llvm::StringRef text) {
  ++compilationCount;
  llvm::SmallString<128> directory;
  if (llvm::sys::fs::createUniqueDirectory("tessera-kernels", directory))
    return failure("cannot create a temporary directory; set TMPDIR");
  auto cleanup = llvm::make_scope_exit(
      [&] { llvm::sys::fs::remove_directories(directory); });
  if (llvm::Error error = writeDeviceFiles(directory))
    return std::move(error);
  auto inside = [&](llvm::StringRef file) {
    llvm::SmallString<128> path(directory);
    llvm::sys::path::append(path, file);
    return path.str().str();
  };
  std::string source = inside(compiler.source),
              output = inside(compiler.output), log = inside("log");
  std::error_code error;
  {
    llvm::raw_fd_ostream out(source, error);
    out << text;
    out.flush();
    if (!error)
      error = out.error();
    out.clear_error();
  }
  if (error)
    return failure(source + ": cannot be written: " + error.message());
  llvm::SmallVector<llvm::StringRef> arguments{compiler.program};
  llvm::append_range(arguments, compiler.arguments);
  arguments.append({"-I", directory, source, "-o", output});
  if (!compiler.kept.empty())
    arguments.append({"--keep", "--keep-dir", directory});
  std::optional<llvm::StringRef> redirects[] = {std::nullopt, log, log};
  std::string why;
  int status = llvm::sys::ExecuteAndWait(
      compiler.program, arguments, std::nullopt, redirects, /*SecondsToWait=*/0,
      /*MemoryLimit=*/0, &why);
  if (status < 0)
    return failure(compiler.program + " cannot be run: " + why);
  CompilerOutput result{
      contentOf(output), contentOf(log),
      compiler.kept.empty() ? "" : contentOf(inside(compiler.kept))};
  if (status != 0)
    return failure(compiler.program + " rejects generated kernels: " +
                   firstDiagnostic(result.log, text, compiler.source));
  return result;
}

} // namespace tessera::cuda
