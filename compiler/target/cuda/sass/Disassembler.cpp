#include "compiler/target/cuda/sass/Disassembler.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "runtime/support/Text.h"

extern char **environ; // of this process, for the child

namespace tessera::sass {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostText = std::size_t(1) << 30;

bool isProgram(const fs::path &path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

std::string valueOf(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

// lib/python3.11/site-packages/nvidia/cu13/bin/nvdisasm
std::string findInEnvironment(const std::string &environment) {
  if (environment.empty())
    return "";
  std::error_code error;
  for (const auto &python :
       fs::directory_iterator(fs::path(environment) / "lib", error)) {
    std::error_code inner;
    for (const auto &version : fs::directory_iterator(
             python.path() / "site-packages" / "nvidia", inner))
      if (fs::path path = version.path() / "bin" / "nvdisasm"; isProgram(path))
        return path;
  }
  return "";
}

/// A file that is removed with this object.
class TemporaryFile {
public:
  TemporaryFile() {
    std::error_code error;
    path = (fs::temp_directory_path(error) / "tessera-sass-XXXXXX").string();
    descriptor = ::mkstemp(path.data());
  }
  ~TemporaryFile() {
    if (descriptor < 0)
      return;
    ::close(descriptor);
    ::unlink(path.c_str());
  }
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;
  bool write(std::string_view bytes) const {
    while (descriptor >= 0 && !bytes.empty()) {
      const ssize_t done = ::write(descriptor, bytes.data(), bytes.size());
      if (done < 0 && errno != EINTR)
        return false;
      bytes.remove_prefix(done < 0 ? 0 : std::size_t(done));
    }
    return descriptor >= 0;
  }
  std::string path;

private:
  int descriptor = -1;
};

/// Reads to the end, whatever is too much being dropped.
std::string readAll(int descriptor) {
  std::string text;
  std::vector<char> buffer(1 << 16);
  for (;;) {
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return text;
    if (text.size() < kMostText)
      text.append(buffer.data(), std::size_t(got));
  }
}

} // namespace

std::string findDisassembler() {
  // A wrong path is an error of its user.
  if (std::string named = valueOf("TESSERA_NVDISASM"); !named.empty())
    return named;
  std::string path = valueOf("PATH");
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t end = std::min(path.find(':', start), path.size());
    if (fs::path one = fs::path(path.substr(start, end - start)) / "nvdisasm";
        end > start && isProgram(one))
      return one;
    start = end + 1;
  }
  if (std::string found = findInEnvironment(valueOf("VIRTUAL_ENV"));
      !found.empty())
    return found;
  std::string home = valueOf("CUDA_HOME");
  const fs::path last =
      fs::path(home.empty() ? "/usr/local/cuda" : home) / "bin" / "nvdisasm";
  return isProgram(last) ? last.string() : "";
}

StatusOr<std::string> disassemble(const std::string &disassembler,
                                  std::string_view cubin) {
  const TemporaryFile file;
  if (!file.write(cubin))
    return Status::error("{}: cannot write the code to disassemble: {}",
                         file.path, std::strerror(errno));
  int ends[2];
  if (::pipe(ends) != 0)
    return Status::error("cannot open a pipe: {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  std::string name = disassembler, code = "-c", hex = "-hex", path = file.path;
  char *arguments[] = {name.data(), code.data(), hex.data(), path.data(),
                       nullptr};
  pid_t child = 0;
  const int error = ::posix_spawn(&child, disassembler.c_str(), &actions,
                                  nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text = error ? "" : readAll(ends[0]);
  ::close(ends[0]);
  if (error)
    return Status::error("{} cannot be run: {}; {}", disassembler,
                         std::strerror(error), kHowToGetDisassembler);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return Status::error("{} fails: {}", disassembler, quote(text));
  if (text.size() >= kMostText)
    return Status::error("{} prints more than {} bytes", disassembler,
                         kMostText);
  return text;
}

} // namespace tessera::sass
