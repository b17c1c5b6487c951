# Settings that every target shares, and the two functions by which folders
# declare their libraries. Includes are rooted at the repository.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# Eight sources of a target are compiled as one: headers and templates are half of
# the time that a source takes alone. -DTESSERA_UNITY=OFF compiles each alone, for
# clangd and for who edits one file again and again.
option(TESSERA_UNITY "Compile eight sources of a target as one" ON)
set(CMAKE_UNITY_BUILD ${TESSERA_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
# tessera_apart(source...): sources of this folder that are compiled alone; mostly
# since they define names of their own that another of the target defines, too.
function(tessera_apart)
  foreach(source ${ARGN})
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source})
      message(FATAL_ERROR "tessera_apart: there is no ${source}")
    endif()
  endforeach()
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
# Line tables are what a backtrace needs; full debug info doubles the build.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")

add_compile_options(-Wall -Wextra -Werror -Wno-unused-parameter)
include_directories(${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
if(TESSERA_SANITIZE)
  add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
endif()

# Programs have what they use only, though an object has eight sources.
add_compile_options(-ffunction-sections -fdata-sections)
add_link_options(-Wl,--gc-sections)

# Parsers must be instrumented for a fuzzer to see into them, so all is.
option(TESSERA_FUZZ "Build libFuzzer targets (clang)" OFF)
if(TESSERA_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
  add_link_options(-fsanitize=address,undefined)
endif()

# Some 200 programs are linked, most of them tests: lld takes a fifth of the time.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=lld TESSERA_HAS_LLD)
if(TESSERA_HAS_LLD)
  add_link_options(-fuse-ld=lld)
endif()

find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers are cached only if ccache may trust their macros.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${TESSERA_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)

# tessera_pch(name header [EXECUTABLES]): a target that only precompiles a
# header, for libraries or for executables, which differ in -fPIC and -fPIE.
# tessera_use_pch(target name): compiles the target with it. Both need the same
# options for exceptions and run-time type information.
function(tessera_pch name header)
  add_library(${name} OBJECT ${CMAKE_SOURCE_DIR}/cmake/Pch.cpp)
  if("EXECUTABLES" IN_LIST ARGN)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${name} PRIVATE -fPIE)
  endif()
  target_link_libraries(${name} PUBLIC TesseraFmt)
  target_precompile_headers(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/${header})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()
function(tessera_use_pch target name)
  target_precompile_headers(${target} REUSE_FROM ${name})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

# Training executables and the runtime depend on libc and the C++ library alone,
# so that they can be copied to another machine: other libraries are linked in (find_library(X.a)).
add_library(TesseraFmt STATIC ${CMAKE_SOURCE_DIR}/cmake/Fmt.cpp)
target_include_directories(TesseraFmt SYSTEM PUBLIC
  $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)

tessera_pch(TesseraRuntimePch RuntimePch.h)
tessera_pch(TesseraArtifactPch ArtifactPch.h)
add_dependencies(TesseraArtifactPch TesseraArtifactHeader)

# tessera_runtime_library(name [PCH target] SOURCES ... LINK ...): no LLVM in sight.
function(tessera_runtime_library name)
  cmake_parse_arguments(ARG "" "PCH" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_PCH)
    set(ARG_PCH TesseraRuntimePch)
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC TesseraFmt Threads::Threads ${ARG_LINK})
  tessera_use_pch(${name} ${ARG_PCH})
endfunction()
