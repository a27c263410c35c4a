/* Start and end of the use of aclnn. Neither is needed; both always succeed. */
#ifndef QKVFUSE_ACL_ACLNN_ACLNN_BASE_H_
#define QKVFUSE_ACL_ACLNN_ACLNN_BASE_H_

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* configPath may be null and is not read. */
ACL_FUNC_VISIBILITY aclnnStatus aclnnInit(const char *configPath);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFinalize(void);

#ifdef __cplusplus
}
#endif

#endif /* QKVFUSE_ACL_ACLNN_ACLNN_BASE_H_ */
