# MLIR and LLVM 19, shared libraries only: mixing in the static ones registers
# every command-line option twice.
find_package(MLIR 19.1 REQUIRED CONFIG HINTS /usr/lib/llvm-19/lib/cmake/mlir)
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
include(TableGen)
include(AddLLVM)
include(AddMLIR)

set(TESSERA_LLVM_TOOLS_DIR ${LLVM_TOOLS_BINARY_DIR})
set(TESSERA_MLIR_LINK MLIR LLVM)

# The MLIR headers, precompiled: a translation unit takes 2 s, not 9. What our
# own tablegen files become is half of the rest, so it is precompiled, too, where
# most sources include it. Libraries of the compiler have no exceptions; tools and
# tests do.
function(tessera_mlir_pch name header)
  tessera_pch(${name} ${header} ${ARGN})
  target_include_directories(${name} SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
  target_compile_options(${name} PRIVATE -fno-rtti)
endfunction()
foreach(pch Compiler Graph Kernels)
  tessera_mlir_pch(Tessera${pch}Pch ${pch}Pch.h)
  target_compile_options(Tessera${pch}Pch PRIVATE -fno-exceptions)
endforeach()
tessera_mlir_pch(TesseraApiPch ToolPch.h)
tessera_mlir_pch(TesseraToolPch ToolPch.h EXECUTABLES)
add_dependencies(TesseraGraphPch GraphTableGen GraphInterfacesTableGen)
add_dependencies(TesseraKernelsPch GraphTableGen GraphInterfacesTableGen TileTableGen)
add_dependencies(TesseraApiPch TesseraArtifactHeader)
add_dependencies(TesseraToolPch TesseraArtifactHeader)

# tessera_tablegen(target TD <file> [flag output]...): runs mlir-tblgen.
function(tessera_tablegen target td)
  set(LLVM_TARGET_DEFINITIONS ${td})
  include_directories(SYSTEM ${MLIR_INCLUDE_DIRS})
  set(args ${ARGN})
  while(args)
    list(POP_FRONT args flag output)
    separate_arguments(flags UNIX_COMMAND "${flag}")
    mlir_tablegen(${output} ${flags})
  endwhile()
  add_public_tablegen_target(${target})
endfunction()

# tessera_compiler_library(name [PCH target] SOURCES ... LINK ... DEPENDS tablegen-targets)
function(tessera_compiler_library name)
  cmake_parse_arguments(ARG "EXCEPTIONS" "PCH" "SOURCES;LINK;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
  target_link_libraries(${name} PUBLIC TesseraFmt ${ARG_LINK} ${TESSERA_MLIR_LINK})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  # A library around an exception-throwing parser (yaml-cpp, nlohmann) keeps
  # exceptions and catches them at its own border.
  if(ARG_EXCEPTIONS)
    target_compile_options(${name} PRIVATE -fno-rtti)
    set(pch TesseraApiPch)
  else()
    target_compile_options(${name} PRIVATE -fno-rtti -fno-exceptions)
    set(pch TesseraCompilerPch)
  endif()
  if(ARG_PCH)
    set(pch ${ARG_PCH})
  endif()
  tessera_use_pch(${name} ${pch})
endfunction()

# tessera_tool(name SOURCES ... LINK ...): an executable that links MLIR.
function(tessera_tool name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} SYSTEM PRIVATE ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
  target_compile_options(${name} PRIVATE -fno-rtti)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} ${TESSERA_MLIR_LINK})
  tessera_use_pch(${name} TesseraToolPch)
endfunction()

# tessera_docs(dialect td): the op reference as Markdown in build/docs/.
function(tessera_docs dialect td)
  set(output ${CMAKE_BINARY_DIR}/docs/${dialect}.md)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/docs
    COMMAND ${MLIR_TABLEGEN_EXE} -gen-dialect-doc -dialect=${dialect} -I${CMAKE_SOURCE_DIR}
            "-I$<JOIN:${MLIR_INCLUDE_DIRS},;-I>" ${CMAKE_CURRENT_SOURCE_DIR}/${td} -o ${output}
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${td} COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(docs-${dialect} DEPENDS ${output})
endfunction()
