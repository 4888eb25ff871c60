# The CUDA backend: src/backend/cuda compiled by nvcc into kapitsa_backend. KAPITSA_CUDA=AUTO builds it where nvcc is found. CMake 3.25 knows CUDA standards up to 17 only, so the standard is given as a plain option.
if(KAPITSA_CUDA STREQUAL "AUTO")
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "No nvcc: building without the CUDA backend")
    return()
  endif()
endif()
# Every compute capability from 8.0 on; the last one also as PTX, for cards that do not exist yet.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90a-real 100-real 120)
endif()
enable_language(CUDA)
# CMake 3.25 does not know how to ask nvcc 13 for C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
find_package(CUDAToolkit REQUIRED)
file(GLOB cuda_sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cu ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cpp)
add_library(kapitsa_backend_cuda OBJECT ${cuda_sources})
target_compile_options(kapitsa_backend_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Xcompiler=-ffp-contract=off>"
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${KAPITSA_WERROR}>>:-Werror=all-warnings>)
kapitsa_compile_options(kapitsa_backend_cuda)
target_link_libraries(kapitsa_backend_cuda PRIVATE kapitsa_plan kapitsa_weights kapitsa_base CUDA::cudart_static)
target_sources(kapitsa_backend PRIVATE $<TARGET_OBJECTS:kapitsa_backend_cuda>)
target_compile_definitions(kapitsa_backend PRIVATE KAPITSA_CUDA=1)
target_link_libraries(kapitsa_backend PUBLIC CUDA::cudart_static)
